// Sums over the whole batch before the first microbatch of a step needs them.
//
// A loss that multiplies such sums (planner/whole_batch.h) reads, in each microbatch, those of all
// of them. So the forward as far as the sums is there twice: the copy is a sweep over all
// microbatches, which keeps nothing but the sums, and then the microbatches run as always. What
// costs a forward up to the last router buys losses and gradients that do not depend on the number
// of microbatches, at the memory of one.
//
// Thread rule: pure functions.
#pragma once

#include "base/result.h"
#include "ir/graph.h"
#include "planner/layout.h"

namespace meshwright::planner {

// The graph as it is where nothing asks for such sums or there is one microbatch. Feeds are read in
// the sweep, once; noise of the copy is that of the forward.
Result<ir::Graph> WithRouterSweep(ir::Graph graph, const Layout& layout);

}  // namespace meshwright::planner
