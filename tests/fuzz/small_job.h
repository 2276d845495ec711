// A small job as the house makes it of a job file: what seeds are cut from.
#pragma once

#include <string>

#include "ir/job.h"
#include "tests/fuzz/target.h"

namespace meshwright::fuzz {

extern const char kSmallJobFile[];

// A GPT of one layer, from kSmallJobFile.
const ir::JobRequest& SmallJob();
// The texts of its graphs.
Seeds SeedsOfGraphs();

}  // namespace meshwright::fuzz
