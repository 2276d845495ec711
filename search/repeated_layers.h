// Which nodes of a step graph are the same node of equal layers, so that a search decides once.
//
// Two layers are equal when their nodes, in order, have the same op, phase, types and attributes
// but names, and read each other alike; params count by their place in the layer. What a layer
// reads of other layers is free. Nodes without a layer (the update, params and the optimizer's
// state) are equal when what they read is.
//
// Thread rule: pure functions. Source: repeated layers are solved once, planner.md 9.6.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace meshwright::search {

// Per node, the first node that is equal to it: itself where nothing before is.
std::vector<int> RepeatedNodes(const ir::Graph& graph);

}  // namespace meshwright::search
