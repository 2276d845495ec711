// Losses that multiply sums over the whole batch: with several microbatches the sums are not there
// when they are multiplied.
//
// A node says so by its attr whole_batch:str, the setting that asks for it and what to set instead.
// Thread rule: pure functions.
#pragma once

#include <string>

#include "base/result.h"
#include "ir/job.h"
#include "planner/layout.h"

namespace meshwright::planner {

// Of the programs of a job; "": none has such a loss.
std::string WholeBatchOf(const ir::JobRequest& job);

// Errors: kInvalidArgument for several microbatches of such a job.
Status CheckWholeBatch(const ir::JobRequest& job, const Layout& layout);

}  // namespace meshwright::planner
