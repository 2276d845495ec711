#include "planner/recompute.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <utility>

#include "base/text.h"
#include "ir/builder.h"
#include "planner/strategy.h"

namespace meshwright::planner {
namespace {

using ir::Graph;
using ir::Node;
using ir::Op;
using ir::Phase;

constexpr int64_t kSmallestBytes = 4096;

bool IsCheap(Op op) {
  return op == Op::kGelu || op == Op::kSilu || op == Op::kMul || op == Op::kLayerNorm ||
         op == Op::kRmsNorm;
}

class Recomputer {
 public:
  Recomputer(const Graph& graph, const std::vector<Recompute>& modes)
      : graph_(graph),
        modes_(modes),
        builder_(graph.name),
        map_(graph.values.size()),
        again_(graph.values.size()),
        read_in_backward_(graph.values.size(), false),
        recomputed_(graph.values.size(), false) {}

  Result<Graph> Run() {
    Choose();
    for (const Node& node : graph_.nodes) Emit(node);
    for (const ir::NamedValue& output : graph_.outputs) {
      builder_.SetOutput(output.name, map_[Index(output.value)]);
    }
    return builder_.Finish();
  }

 private:
  static size_t Index(ValueId id) { return static_cast<size_t>(id.value()); }

  void Choose() {
    for (const Node& node : graph_.nodes) {
      if (node.phase != Phase::kBackward) continue;
      for (ValueId input : node.inputs) read_in_backward_[Index(input)] = true;
    }
    KeepLayerInputs();
    for (const Node& node : graph_.nodes) {
      if (node.phase != Phase::kForward) continue;
      const Recompute mode = ModeOf(node);
      const bool chosen = mode == Recompute::kSelective ? IsFreeAgain(node)
                                                        : mode == Recompute::kFull && Inside(node);
      for (ValueId result : node.outputs) recomputed_[Index(result)] = chosen;
    }
  }

  Recompute ModeOf(const Node& node) const {
    if (node.layer < 0 || static_cast<size_t>(node.layer) >= modes_.size()) return Recompute::kNone;
    return modes_[static_cast<size_t>(node.layer)];
  }

  // What one layer reads of another, and the logits.
  void KeepLayerInputs() {
    for (const Node& node : graph_.nodes) {
      if (node.phase != Phase::kForward) continue;
      for (ValueId input : node.inputs) {
        const bool crosses = graph_.producer(input).layer != node.layer;
        if (crosses || node.op == Op::kCrossEntropy) kept_.insert(input);
      }
    }
    for (const ir::NamedValue& output : graph_.outputs) kept_.insert(output.value);
  }

  bool Inside(const Node& node) const {
    const bool source = node.inputs.empty() || IsWeightCast(graph_, node);
    const bool loss = node.op == Op::kCrossEntropy || node.op == Op::kHeadLoss;
    return !source && !loss &&
           std::none_of(node.outputs.begin(), node.outputs.end(),
                        [&](ValueId result) { return kept_.contains(result); });
  }

  bool IsFreeAgain(const Node& node) const {
    if (!IsCheap(node.op)) return false;
    const ValueId result = node.outputs[0];
    const bool there = std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
      return read_in_backward_[Index(input)] || graph_.producer(input).op == Op::kParam;
    });
    return there && read_in_backward_[Index(result)] &&
           graph_.type(result).bytes() >= kSmallestBytes;
  }

  void Emit(const Node& node) {
    std::vector<ValueId> inputs;
    for (ValueId input : node.inputs) {
      inputs.push_back(node.phase == Phase::kBackward ? InBackward(input) : map_[Index(input)]);
    }
    const std::vector<ValueId> outputs = Add(node, std::move(inputs), node.phase);
    for (size_t i = 0; i < outputs.size(); ++i) map_[Index(node.outputs[i])] = outputs[i];
  }

  std::vector<ValueId> Add(const Node& node, std::vector<ValueId> inputs, Phase phase) {
    std::vector<ir::TensorType> types;
    for (ValueId output : node.outputs) types.push_back(graph_.type(output));
    builder_.SetLayer(node.layer);
    builder_.SetPhase(phase);
    return builder_.Add(node.op, std::move(inputs), node.attrs, std::move(types));
  }

  // The value as the backward reads it: computed again in front of its first reader.
  ValueId InBackward(ValueId value) {
    if (!recomputed_[Index(value)]) return map_[Index(value)];
    if (again_[Index(value)].valid()) return again_[Index(value)];
    const Node& node = graph_.producer(value);
    std::vector<ValueId> inputs;
    for (ValueId input : node.inputs) inputs.push_back(InBackward(input));
    const std::vector<ValueId> outputs = Add(node, std::move(inputs), Phase::kBackward);
    for (size_t i = 0; i < outputs.size(); ++i) again_[Index(node.outputs[i])] = outputs[i];
    return again_[Index(value)];
  }

  const Graph& graph_;
  const std::vector<Recompute>& modes_;
  ir::Builder builder_;
  std::vector<ValueId> map_;    // of the values as the forward makes them
  std::vector<ValueId> again_;  // of those that the backward makes again
  std::vector<bool> read_in_backward_;
  std::vector<bool> recomputed_;
  std::set<ValueId> kept_;
};

const char* ModeName(Recompute mode) {
  switch (mode) {
    case Recompute::kNone:
      break;
    case Recompute::kSelective:
      return "selective";
    case Recompute::kFull:
      return "full";
  }
  return "none";
}

// "3" or "0-5".
std::optional<std::pair<int, int>> ParseRange(std::string_view text) {
  const auto number = [](std::string_view part) -> std::optional<int> {
    int value = 0;
    const char* const end = part.data() + part.size();
    const auto [at, error] = std::from_chars(part.data(), end, value);
    if (error != std::errc() || at != end || value < 0) return std::nullopt;
    return value;
  };
  const size_t dash = text.find('-');
  const auto first = number(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : number(text.substr(dash + 1));
  if (!first || !last || *first > *last) return std::nullopt;
  return std::pair(*first, *last);
}

std::optional<Recompute> ModeNamed(std::string_view name) {
  for (const Recompute mode : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    if (ModeName(mode) == name) return mode;
  }
  return std::nullopt;
}

}  // namespace

Result<Graph> RecomputeActivations(const Graph& step_graph, const std::vector<Recompute>& modes) {
  return Recomputer(step_graph, modes).Run();
}

Result<std::vector<Recompute>> RecomputeOfLayers(Recompute mode, const std::string& layers,
                                                 int layer_count) {
  const auto size = static_cast<size_t>(layer_count);
  if (layers.empty()) return std::vector<Recompute>(size, mode);
  std::vector<Recompute> modes(size, Recompute::kNone);
  for (const std::string& field : Split(layers, ',')) {
    const std::string_view part = Trim(field);
    const size_t space = part.find(' ');
    const auto range = ParseRange(part.substr(0, space));
    const auto own = space == std::string_view::npos ? std::optional(mode)
                                                     : ModeNamed(Trim(part.substr(space + 1)));
    if (!range || !own) {
      return Fail(InvalidField(
          "parallel.recompute_layers",
          fmt::format(
              "is '{}': '{}' is no layer or range; write layers "
              "as in \"0-5,11\", or with modes of their own as in \"0-5 full,6-11 selective\"",
              layers, part)));
    }
    if (range->second >= layer_count) {
      return Fail(InvalidField("parallel.recompute_layers",
                               fmt::format("is '{}', but the model has {} layers, the last is "
                                           "{}",
                                           layers, layer_count, layer_count - 1)));
    }
    for (int layer = range->first; layer <= range->second; ++layer) {
      modes[static_cast<size_t>(layer)] = *own;
    }
  }
  return modes;
}

std::string FormatRecompute(const std::vector<Recompute>& modes) {
  std::vector<std::string> runs;
  for (size_t begin = 0; begin < modes.size();) {
    size_t end = begin;
    while (end < modes.size() && modes[end] == modes[begin]) ++end;
    if (begin == 0 && end == modes.size()) return ModeName(modes[0]);
    runs.push_back(end - begin == 1
                       ? fmt::format("{} {}", begin, ModeName(modes[begin]))
                       : fmt::format("{}-{} {}", begin, end - 1, ModeName(modes[begin])));
    begin = end;
  }
  return runs.empty() ? "none" : fmt::format("{}", fmt::join(runs, ", "));
}

void PinRecompute(const std::vector<Recompute>& modes, ir::ParallelSpec& spec) {
  const auto has = [&](Recompute mode) {
    return std::find(modes.begin(), modes.end(), mode) != modes.end();
  };
  spec.recompute_layers.clear();
  spec.recompute = has(Recompute::kFull)        ? "full"
                   : has(Recompute::kSelective) ? "selective"
                                                : "none";
  const bool mixed =
      std::adjacent_find(modes.begin(), modes.end(), std::not_equal_to<>()) != modes.end();
  if (mixed) spec.recompute_layers = FormatRecompute(modes);
}

}  // namespace meshwright::planner
