// What a step's update renews: outputs "update/P" of a step graph stand for params P.
//
// Thread rule: pure functions.
#pragma once

#include <map>

#include "ir/graph.h"

namespace meshwright::planner {

// By the value that renews it, each param. REQUIRES a graph as ir::AppendUpdate makes it: every
// such output has its param.
std::map<ValueId, ValueId> RenewedParams(const ir::Graph& step_graph);

}  // namespace meshwright::planner
