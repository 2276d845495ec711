// Layers of a loss graph, as pipeline stages see them.
//
// Thread rule: pure functions.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace meshwright::ir {

// Per node, whether it follows from the data or from nothing: feeds, constants, random numbers, and
// what forward and backward compute from them alone. Such nodes are computed wherever they are read
// and belong to no layer, whatever number they carry.
std::vector<bool> FreeNodes(const Graph& graph);

// Per node, the layer that it is computed with: its own, or that of its latest operand (0 when
// there is none) when it has none. -1 for params and free nodes.
std::vector<int> ComputedLayers(const Graph& loss);

}  // namespace meshwright::ir
