// Activations that the backward computes again instead of keeping them.
//
// kSelective: results of an elementwise op or a norm that the backward reads, when it has the op's
// operands anyway (it reads them itself, they are weights, or they are recomputed, too). Nothing
// lives longer for it, and it costs a pass over memory each. kFull: all that the backward of a
// layer reads of its forward but what crosses into the layer; it costs the layer's forward a second
// time. The logits are kept: the backward begins with them. In either case the values are the same
// bit by bit.
//
// Thread rule: pure functions. Source: Chen et al., "Training deep nets with sublinear memory
// cost", 2016; Korthikanti et al., "Reducing activation recomputation", MLSys'23, section 5.
#pragma once

#include <vector>

#include "base/result.h"
#include "ir/graph.h"
#include "planner/recompute_modes.h"

namespace meshwright::planner {

// modes: per layer. REQUIRES: a step graph. Ids change; names, outputs and phases of what was there
// stay.
Result<ir::Graph> RecomputeActivations(const ir::Graph& step_graph,
                                       const std::vector<Recompute>& modes);

}  // namespace meshwright::planner
