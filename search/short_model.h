// A model with each kind of layer once: what a search measures instead of all layers.
//
// Layers one after the other that are equal become their first. The graph stays a sound loss graph:
// what later layers read of a layer that is gone, they read of the one that stands for it.
//
// Two layers are equal when their nodes, in order, have the same op, phase, types and attributes
// but names, and read each other alike; params count by their place in the layer. What a layer
// reads of other layers is free. Nodes without a layer (the update, params and the optimizer's
// state) are equal when what they read is.
//
// Thread rule: pure functions.
#pragma once

#include <vector>

#include "base/result.h"
#include "ir/graph.h"

namespace meshwright::search {

// Per node of a step graph, the first node of an equal layer that is equal to it: itself where
// nothing before is. A search decides for it once.
std::vector<int> RepeatedNodes(const ir::Graph& graph);

struct ShortModel {
  ir::Graph loss;
  std::vector<int> short_layer;  // per layer of the whole model
  int layers() const { return short_layer.empty() ? 0 : short_layer.back() + 1; }
};

// REQUIRES: a loss graph whose nodes carry their layer (planner::FillLayers). Errors: kInternal
// when the short graph is not sound.
Result<ShortModel> ShortenModel(const ir::Graph& loss);

}  // namespace meshwright::search
