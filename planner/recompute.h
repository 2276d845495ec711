// Activations that the backward computes again instead of keeping them.
//
// Which: results of an elementwise op or a norm that the backward reads, when it has the op's
// operands anyway (it reads them itself, they are weights, or they are recomputed, too). Nothing
// lives longer for it, and the values are the same bit by bit. What it costs is a pass over memory
// each, so a plan does it only where the job would not fit otherwise (planner/plan.h).
//
// Thread rule: pure functions.
#pragma once

#include "base/result.h"
#include "ir/graph.h"

namespace meshwright::planner {

// REQUIRES: a step graph. Ids change; names, outputs and phases of what was there stay.
Result<ir::Graph> RecomputeActivations(const ir::Graph& step_graph);

}  // namespace meshwright::planner
