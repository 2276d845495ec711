// Sums over the whole batch before the first microbatch of a step needs them.
//
// A loss that multiplies such sums reads, in each microbatch, those of all of them. So the forward
// as far as the sums is there twice: the copy is a sweep over all microbatches, which keeps nothing
// but the sums, and then the microbatches run as always. What costs a forward up to the last router
// buys losses and gradients that do not depend on the number of microbatches, at the memory of one.
//
// A node whose result is such a sum says so by its attr whole_batch:str, the setting that asks for
// it and what to set instead. No gradient passes it.
//
// Thread rule: pure functions.
#pragma once

#include <string>

#include "base/result.h"
#include "ir/graph.h"
#include "ir/job.h"
#include "planner/layout.h"

namespace meshwright::planner {

inline constexpr char kWholeBatchAttr[] = "whole_batch";

// Of the programs of a job; "": none has such a loss.
std::string WholeBatchOf(const ir::JobRequest& job);

// Errors: kInvalidArgument for several microbatches of such a job in a pipeline.
Status CheckWholeBatch(const ir::JobRequest& job, const Layout& layout);

// The graph as it is where nothing asks for such sums or there is one microbatch. Feeds are read in
// the sweep, once; noise of the copy is that of the forward.
Result<ir::Graph> WithRouterSweep(ir::Graph graph, const Layout& layout);

}  // namespace meshwright::planner
