// Adds that are worth doing on summands: x + attention + ffn of a parallel residual, each half
// partial over the tensor group, needs one reduction if x and biases are added before it.
//
// Thread rule: pure functions. Source: Redco (Tan et al., 2023), rule 1: a partial result is
// reduced when it has to be.
#pragma once

#include <cstddef>
#include <set>

#include "ir/graph.h"
#include "planner/stages.h"
#include "planner/strategy.h"

namespace meshwright::planner {

// add, sub, sum.
bool IsAdditive(const ir::Node& node);

// The nodes whose whole operands should become summands, so that a node behind them adds two
// partial sums and one reduction less is needed. `strategies`: those of the rules without that.
std::set<size_t> AddsOfLaterSums(const ir::Graph& graph, const StageAssignment& stages,
                                 const Strategies& strategies);

}  // namespace meshwright::planner
