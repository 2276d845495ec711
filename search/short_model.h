// A model with each kind of layer once: what a search measures instead of all layers.
//
// Layers one after the other that are equal (search/repeated_layers.h) become their first. The
// graph stays a sound loss graph: what later layers read of a layer that is gone, they read of the
// one that stands for it.
//
// Thread rule: pure functions.
#pragma once

#include <vector>

#include "base/result.h"
#include "ir/graph.h"

namespace meshwright::search {

struct ShortModel {
  ir::Graph loss;
  std::vector<int> short_layer;  // per layer of the whole model
  int layers() const { return short_layer.empty() ? 0 : short_layer.back() + 1; }
};

// REQUIRES: a loss graph whose nodes carry their layer (planner::FillLayers). Errors: kInternal
// when the short graph is not sound.
Result<ShortModel> ShortenModel(const ir::Graph& loss);

}  // namespace meshwright::search
