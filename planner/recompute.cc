#include "planner/recompute.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "ir/builder.h"
#include "ir/rewrite.h"
#include "planner/router_sweep.h"
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
        read_elsewhere_(graph.values.size(), false),
        recomputed_(graph.values.size(), false) {}

  Result<Graph> Run() {
    Choose();
    for (const Node& node : graph_.nodes) Emit(node);
    for (const ir::NamedValue& output : graph_.outputs) {
      builder_.SetOutput(output.name, map_[output.value]);
    }
    return builder_.Finish();
  }

 private:
  void Choose() {
    for (const Node& node : graph_.nodes) {
      if (node.phase != Phase::kBackward) continue;
      for (ValueId input : node.inputs) {
        read_in_backward_[input] = true;
        if (graph_.producer(input).layer != node.layer) read_elsewhere_[input] = true;
      }
    }
    KeepLayerInputs();
    for (const Node& node : graph_.nodes) {
      if (node.phase != Phase::kForward) continue;
      const Recompute mode = ModeOf(node);
      const bool chosen = mode == Recompute::kSelective ? IsFreeAgain(node)
                                                        : mode == Recompute::kFull && Inside(node);
      for (ValueId result : node.outputs) recomputed_[result] = chosen;
    }
  }

  Recompute ModeOf(const Node& node) const { return ModeOfLayer(modes_, node.layer); }

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
    // A sum over the whole batch is not one of a microbatch, and small.
    return !source && !loss && !node.attrs.Has(kWholeBatchAttr) &&
           std::none_of(node.outputs.begin(), node.outputs.end(),
                        [&](ValueId result) { return kept_.contains(result); });
  }

  bool IsFreeAgain(const Node& node) const {
    if (!IsCheap(node.op)) return false;
    const ValueId result = node.outputs[0];
    const bool there = std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
      return read_in_backward_[input] || graph_.producer(input).op == Op::kParam;
    });
    // What is made again in the backward of its layer comes too late for others.
    if (read_elsewhere_[result]) return false;
    return there && read_in_backward_[result] && graph_.type(result).bytes() >= kSmallestBytes;
  }

  void Emit(const Node& node) {
    std::vector<ValueId> inputs;
    for (ValueId input : node.inputs) {
      inputs.push_back(node.phase == Phase::kBackward ? InBackward(input) : map_[input]);
    }
    const std::vector<ValueId> outputs = ir::AddLike(builder_, graph_, node, std::move(inputs));
    MW_CHECK(outputs.size() <= node.outputs.size()) << ir::OpName(node.op);
    for (size_t i = 0; i < outputs.size(); ++i) map_[node.outputs[i]] = outputs[i];
  }

  // The value as the backward reads it: computed again in front of its first reader.
  ValueId InBackward(ValueId value) {
    if (!recomputed_[value]) return map_[value];
    if (again_[value].valid()) return again_[value];
    Node node = graph_.producer(value);
    node.phase = Phase::kBackward;
    std::vector<ValueId> inputs;
    for (ValueId input : node.inputs) inputs.push_back(InBackward(input));
    const std::vector<ValueId> outputs = ir::AddLike(builder_, graph_, node, std::move(inputs));
    MW_CHECK(outputs.size() <= node.outputs.size()) << ir::OpName(node.op);
    for (size_t i = 0; i < outputs.size(); ++i) again_[node.outputs[i]] = outputs[i];
    return again_[value];
  }

  const Graph& graph_;
  const std::vector<Recompute>& modes_;
  ir::Builder builder_;
  IdVector<ValueId, ValueId> map_;    // of the values as the forward makes them
  IdVector<ValueId, ValueId> again_;  // of those that the backward makes again
  IdVector<ValueId, bool> read_in_backward_;
  IdVector<ValueId, bool> read_elsewhere_;  // in the backward of another layer
  IdVector<ValueId, bool> recomputed_;
  std::set<ValueId> kept_;
};

}  // namespace

Result<Graph> RecomputeActivations(const Graph& step_graph, const std::vector<Recompute>& modes) {
  return Recomputer(step_graph, modes).Run();
}

}  // namespace meshwright::planner
