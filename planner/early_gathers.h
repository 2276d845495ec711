// All-gathers of weights a layer before who reads them.
//
// Where replicas split the weights (planner/zero.h, stage 3), every piece gathers each of them for
// its reader. Where collectives run beside what computes, a gather can run as soon as the bytes of
// its result are free. Listed right before its reader, it has bytes that the kernels before it
// used, and waits for them. So it is listed earlier: its place is its own from there on, and that
// is all there is to it. The memory plan, the verifier and the order by bytes read the list.
//
// How far: the weights that are gathered and not yet read are a layer's at most, and none is
// gathered before the layer ahead of its reader's. So the weight of a layer is gathered when the
// same weight of the layer before is read, whose bytes are the same number; what hides a gather is
// a layer of products. The price is the memory of a layer's whole weights.
//
// Thread rule: pure functions.
#pragma once

#include "base/result.h"
#include "planner/pieces.h"

namespace meshwright::planner {

// In forwards and backwards. Results are the same bit for bit, and calls of a group keep one order
// on all devices, since a stage's devices share a piece. Errors: of building graphs (a planner
// defect).
Status GatherEarly(Partition& partition);

}  // namespace meshwright::planner
