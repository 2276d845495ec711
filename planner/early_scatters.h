// Reductions of the update that can begin before it: in the order in which their operands are made,
// with results in slots.
//
// The optimizer's state is split over replicas (planner/zero.h): the update begins by
// reduce-scattering gradients. Where collectives run beside what computes, each can begin when its
// gradient is there, in the middle of the backward, but not as long as kernels use the bytes that
// it writes: as a temporary of the update it would have bytes that temporaries of the backward
// have, too. As an output of the piece it has a slot, which lives from where its gradient is made
// (SpansOf). The price is the memory of a block of each gradient during the backward.
//
// Thread rule: pure functions.
#pragma once

#include "base/result.h"
#include "planner/pieces.h"

namespace meshwright::planner {

// Of all update pieces. Errors: of building graphs (a planner defect).
Status ScatterEarly(Partition& partition);

}  // namespace meshwright::planner
