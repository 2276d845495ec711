// Losses that multiply sums over the whole batch: with several microbatches the sums are not there
// when they are multiplied, unless a sweep has found them (planner/router_sweep.h).
//
// A node whose result is such a sum says so by its attr whole_batch:str, the setting that asks for
// it and what to set instead. No gradient passes it.
// Thread rule: pure functions.
#pragma once

#include <string>

#include "base/result.h"
#include "ir/job.h"
#include "planner/layout.h"

namespace meshwright::planner {

inline constexpr char kWholeBatchAttr[] = "whole_batch";

// Of the programs of a job; "": none has such a loss.
std::string WholeBatchOf(const ir::JobRequest& job);

// Errors: kInvalidArgument for several microbatches of such a job in a pipeline.
Status CheckWholeBatch(const ir::JobRequest& job, const Layout& layout);

}  // namespace meshwright::planner
