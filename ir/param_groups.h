// What params have of their own in training: none at all (frozen), another learning rate, another
// weight decay. All of it is attributes of the `param` nodes, so it travels with the graph, and
// whoever reads a graph sees it.
//
// A frozen param has no gradient, no optimizer state and no node of a backward that only it needs:
// Differentiate() does not ask for it, and all else follows. It is weight like any other where it
// is stored, split and saved.
//
// Thread rule: pure functions.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"

namespace meshwright::ir {

inline constexpr char kFrozenAttr[] = "frozen";             // int 1
inline constexpr char kRateFactorAttr[] = "lr_factor";      // real, of the job's learning rate
inline constexpr char kWeightDecayAttr[] = "weight_decay";  // real, instead of the job's

bool IsFrozen(const Node& param);

// Params whose names fit a glob ("*.bias", "model.layers.?.mlp.*").
struct ParamGroup {
  std::string pattern;
  std::optional<bool> frozen = {};
  std::optional<double> lr_factor = {};
  std::optional<double> weight_decay = {};
  friend bool operator==(const ParamGroup&, const ParamGroup&) = default;
};

// "*.bias: lr_factor=2, weight_decay=0". Errors: kInvalidArgument quoting the text.
Result<ParamGroup> ParseParamGroup(const std::string& text);

// The graph with the groups' settings on its params; of two groups with the same setting the later
// one counts. Errors: kInvalidArgument naming a pattern that fits no param (with a name that
// there is), or a value out of its range.
Result<Graph> WithParamGroups(const Graph& graph, std::span<const ParamGroup> groups);

// Elements of params that are trained, and of all.
struct TrainedCount {
  int64_t trained = 0;
  int64_t all = 0;
};
TrainedCount CountTrained(const Graph& graph);

}  // namespace meshwright::ir
