#include "planner/stages.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "ir/layers.h"
#include "ir/rewrite.h"
#include "ir/schema.h"
#include "planner/renewals.h"

namespace meshwright::planner {
namespace {

using ir::Graph;
using ir::Node;
using ir::Op;
using ir::Phase;

// A gradient, or what renews a param.
bool IsOfParam(const std::string& output) {
  return output.starts_with("grad/") || output.starts_with("update/");
}

std::set<int> StagesOf(const std::set<int>& parts, const PipelineShape& shape) {
  std::set<int> stages;
  for (const int part : parts) stages.insert(shape.StageOf(part));
  return stages;
}

std::set<int> FirstParts(const std::set<int>& stages, const PipelineShape& shape) {
  std::set<int> parts;
  for (const int stage : stages) parts.insert(shape.PartOf(stage, 0));
  return parts;
}

// State that a rule of its own renews (ir/loss_scale.h), and the node that does: scalars, which
// each stage has and renews alike.
std::map<std::string, size_t> OwnRulesOf(const Graph& graph) {
  constexpr std::string_view kPrefix = "update/";
  std::map<std::string, size_t> rules;
  for (const ir::NamedValue& output : graph.outputs) {
    const bool scalar = graph.type(output.value).rank() == 0;
    const bool rule = graph.producer(output.value).op == Op::kSelect;
    if (!scalar || !rule || !output.name.starts_with(kPrefix)) continue;
    MW_CHECK(output.name.size() > kPrefix.size()) << "a rule renews no state";
    rules[output.name.substr(kPrefix.size())] = graph.value(output.value).producer.index();
  }
  return rules;
}

class Assigner {
 public:
  Assigner(const Graph& graph, std::vector<int> part_of_layer, const PipelineShape& shape)
      : graph_(graph), free_(ir::FreeNodes(graph)), sets_(graph.nodes.size()) {
    result_.shape = shape;
    result_.part_of_layer = std::move(part_of_layer);
  }

  StageAssignment Run() {
    AssignComputation();
    FindHolders();
    AssignUpdate();
    PropagateNeeds();
    const size_t count = graph_.nodes.size();
    result_.node_parts.resize(count);
    result_.node_stages.resize(count);
    for (size_t i = 0; i < count; ++i) {
      const bool update = graph_.nodes[i].phase == Phase::kUpdate;
      if (!update) result_.node_parts[i].assign(sets_[i].begin(), sets_[i].end());
      const std::set<int> stages = update ? sets_[i] : StagesOf(sets_[i], result_.shape);
      result_.node_stages[i].assign(stages.begin(), stages.end());
    }
    FindWeightGradients();
    return std::move(result_);
  }

 private:
  int PartOfLayer(int layer) const {
    if (layer < 0 || result_.part_of_layer.empty()) return 0;
    return result_
        .part_of_layer[std::min(static_cast<size_t>(layer), result_.part_of_layer.size() - 1)];
  }

  const Node& Producer(ValueId id) const { return graph_.producer(id); }

  // sets_ are parts for forward and backward, stages for the update.
  void AssignComputation() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (node.op == Op::kParam || node.phase == Phase::kUpdate || free_[i]) continue;
      sets_[i].insert(node.layer < 0 ? PartOfOperands(node) : PartOfLayer(node.layer));
    }
  }

  // The forward comes through the parts upwards, the backward downwards.
  int PartOfOperands(const Node& node) const {
    std::set<int> parts;
    for (ValueId input : node.inputs) {
      const auto& set = sets_[graph_.value(input).producer.index()];
      parts.insert(set.begin(), set.end());
    }
    if (parts.empty()) return 0;
    return node.phase == Phase::kBackward ? *parts.begin() : *parts.rbegin();
  }

  void FindHolders() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (graph_.nodes[i].phase == Phase::kUpdate) continue;
      for (ValueId input : graph_.nodes[i].inputs) {
        const Node& producer = Producer(input);
        if (producer.op != Op::kParam) continue;
        holders_[producer.attrs.Str("name")].merge(StagesOf(sets_[i], result_.shape));
      }
    }
    for (const auto& [name, holders] : holders_) {
      result_.param_stages[name].assign(holders.begin(), holders.end());
    }
  }

  // Optimizer nodes run at every holder, a gradient's sum of squares at the owner, reports at the
  // last stage.
  void AssignUpdate() {
    std::map<ValueId, std::string> param_of_gradient;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (node.op != Op::kAdamW && node.op != Op::kSgd) continue;
      const std::string name = Producer(node.inputs[0]).attrs.Str("name");
      sets_[i] = holders_[name];
      param_of_gradient[node.inputs[1]] = name;
      for (ValueId input : node.inputs) {
        const Node& state = Producer(input);
        if (state.op == Op::kParam)
          result_.param_stages[state.attrs.Str("name")] = result_.param_stages[name];
      }
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (node.op != Op::kSumSquares || node.phase != Phase::kUpdate) continue;
      const auto it = param_of_gradient.find(node.inputs[0]);
      fixed_.insert(i);
      MW_CHECK(it == param_of_gradient.end() || !holders_[it->second].empty())
          << "the gradient of " << it->second << ", which no stage holds";
      sets_[i] = {it == param_of_gradient.end() ? 0 : *holders_[it->second].begin()};
    }
    for (const Mean& mean : MeansOf(graph_)) {
      result_.param_stages[mean.name] = result_.param_stages[mean.of];
      sets_[graph_.value(mean.renewed).producer.index()] = holders_[mean.of];
    }
    AssignOwnRules();
    for (const ir::NamedValue& output : graph_.outputs) {
      const Node& node = Producer(output.value);
      if (node.phase != Phase::kUpdate || IsOfParam(output.name)) continue;
      const size_t index = graph_.value(output.value).producer.index();
      if (!fixed_.contains(index)) sets_[index].insert(result_.last_stage());
    }
    FixStageSums();
  }

  void AssignOwnRules() {
    for (const auto& [state, node] : OwnRulesOf(graph_)) {
      MW_CHECK(node < sets_.size() && sets_[node].empty()) << state << " is renewed twice";
      for (int stage = 0; stage <= result_.last_stage(); ++stage) sets_[node].insert(stage);
      result_.param_stages[state].assign(sets_[node].begin(), sets_[node].end());
    }
  }

  // A scalar sum over values of one stage is computed there.
  void FixStageSums() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (node.op != Op::kSum || node.phase != Phase::kUpdate) continue;
      if (graph_.type(node.outputs[0]).rank() != 0) continue;
      std::set<int> stages;
      bool all_fixed = true;
      for (ValueId input : node.inputs) {
        const size_t producer = graph_.value(input).producer.index();
        all_fixed = all_fixed && fixed_.contains(producer);
        if (fixed_.contains(producer)) stages.merge(std::set<int>(sets_[producer]));
      }
      if (!all_fixed || stages.size() != 1) continue;
      sets_[i] = stages;
      fixed_.insert(i);
    }
  }

  void PropagateNeeds() {
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      for (ValueId input : graph_.nodes[i].inputs) {
        const size_t producer = graph_.value(input).producer.index();
        const Node& node = graph_.nodes[producer];
        const bool follows =
            free_[producer] || (node.phase == Phase::kUpdate && !fixed_.contains(producer));
        if (!follows || node.op == Op::kParam) continue;
        const bool crosses =
            graph_.nodes[i].phase == Phase::kUpdate && node.phase != Phase::kUpdate;
        // What the update of a stage reads is made with its first part.
        std::set<int> needs = sets_[i];
        if (crosses) needs = FirstParts(sets_[i], result_.shape);
        sets_[producer].merge(std::move(needs));
      }
    }
  }

  // Products and sums whose results are gradients of params and nothing else, with what only they
  // read.
  void FindWeightGradients() {
    const IdVector<ValueId, std::vector<NodeId>> users = graph_.Users();
    std::set<ValueId> gradients;
    for (const ir::NamedValue& output : graph_.outputs) {
      if (output.name.starts_with("grad/")) gradients.insert(output.value);
    }
    result_.is_weight_gradient.assign(graph_.nodes.size(), false);
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      const Node& node = graph_.nodes[i];
      if (node.phase != Phase::kBackward || node.outputs.size() != 1) continue;
      const std::vector<NodeId>& readers = users[node.outputs[0]];
      const bool only_weights = std::all_of(readers.begin(), readers.end(), [&](NodeId reader) {
        return graph_.node(reader).phase == Phase::kUpdate ||
               result_.is_weight_gradient[reader.index()];
      });
      const bool makes = node.op == Op::kEinsum || node.op == Op::kReduceSum ||
                         node.op == Op::kEmbeddingGrad || node.op == Op::kSum;
      const bool moves = node.op == Op::kCast || node.op == Op::kTranspose ||
                         node.op == Op::kReshape || node.op == Op::kPad || node.op == Op::kSlice;
      const bool gradient = gradients.contains(node.outputs[0]) || FeedsSum(readers);
      result_.is_weight_gradient[i] =
          only_weights && !readers.empty() && ((makes && gradient) || moves);
    }
  }

  // A contribution to a gradient that is summed.
  bool FeedsSum(const std::vector<NodeId>& readers) const {
    return std::any_of(readers.begin(), readers.end(), [&](NodeId reader) {
      const Node& node = graph_.node(reader);
      return (node.op == Op::kSum || node.op == Op::kCast || node.op == Op::kReshape ||
              node.op == Op::kTranspose || node.op == Op::kPad) &&
             (node.phase == Phase::kUpdate || result_.is_weight_gradient[reader.index()]);
    });
  }

  const Graph& graph_;
  StageAssignment result_;
  const std::vector<bool> free_;  // have no stage of their own: computed where they are read
  std::vector<std::set<int>> sets_;
  std::set<size_t> fixed_;
  std::map<std::string, std::set<int>> holders_;
};

}  // namespace

std::vector<bool> FindConstants(const Graph& graph) {
  std::vector<bool> constant(graph.nodes.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const bool derived = !node.inputs.empty() && node.phase != Phase::kUpdate &&
                         std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
                           return constant[graph.value(input).producer.index()];
                         });
    constant[i] = node.op == Op::kConstant || node.op == Op::kRandomNormal || derived;
  }
  return constant;
}

int LayerCount(const Graph& graph) {
  int count = 0;
  for (const Node& node : graph.nodes) count = std::max(count, node.layer + 1);
  return count;
}

Graph FillLayers(Graph loss) {
  if (LayerCount(loss) == 0) return loss;
  const std::vector<int> layers = ir::ComputedLayers(loss);
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i] >= 0) loss.nodes[i].layer = layers[i];
  }
  return loss;
}

std::vector<int> BalanceLayers(const Graph& step_graph, int layers, int parts) {
  if (layers == 0) return {};
  MW_CHECK(parts >= 1 && parts <= layers) << parts << " parts of " << layers << " layers";
  std::vector<double> flops(static_cast<size_t>(layers) + 1, 0);  // of the layers before
  for (const Node& node : step_graph.nodes) {
    if (node.layer < 0 || node.layer >= layers) continue;
    flops[static_cast<size_t>(node.layer) + 1] += ir::CostOf(step_graph, node).flops;
  }
  std::partial_sum(flops.begin(), flops.end(), flops.begin());
  return BalanceParts(std::vector<std::span<const double>>(static_cast<size_t>(parts), flops));
}

Result<StageAssignment> AssignStages(const Graph& step_graph, std::vector<int> part_of_layer,
                                     const PipelineShape& shape) {
  return Assigner(step_graph, std::move(part_of_layer), shape).Run();
}

Graph SumGradientsInBackward(Graph step_graph, const StageAssignment& stages) {
  for (Node& node : step_graph.nodes) {
    if (node.op != Op::kSum || node.phase != Phase::kUpdate) continue;
    std::set<int> where;
    const bool backward = std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
      const auto& set = stages.node_parts[step_graph.value(input).producer.index()];
      where.insert(set.begin(), set.end());
      return step_graph.producer(input).phase == Phase::kBackward && set.size() == 1;
    });
    if (backward && where.size() == 1) node.phase = Phase::kBackward;
  }
  return step_graph;
}

Result<Graph> SplitScalarSums(const Graph& step_graph, const StageAssignment& stages) {
  const auto owner = [&](ValueId id) {
    const auto& set = stages.node_stages[step_graph.value(id).producer.index()];
    return set.empty() ? 0 : set.front();
  };
  const auto emit = [&](ir::Builder& builder, const Node& node, const std::vector<ValueId>& inputs,
                        const std::vector<ir::TensorType>& types) {
    std::map<int, std::vector<ValueId>> by_stage;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      by_stage[owner(node.inputs[i])].push_back(inputs[i]);
    const bool scalar_sum =
        node.op == Op::kSum && node.phase == Phase::kUpdate && types[0].rank() == 0;
    if (!scalar_sum || by_stage.size() < 2) return builder.Add(node.op, inputs, node.attrs, types);
    std::vector<ValueId> sums;
    for (const auto& [stage, values] : by_stage)
      sums.push_back(builder.AddOne(Op::kSum, values, {}, types));
    return builder.Add(Op::kSum, sums, {}, types);
  };
  return ir::RewriteGraph(step_graph, emit);
}

namespace {

// The bound need not be tight, only close.
constexpr int kBisections = 24;

constexpr double kNeverSeconds = std::numeric_limits<double>::infinity();

size_t LayerIndex(int index) { return static_cast<size_t>(index); }

class Balancer {
 public:
  explicit Balancer(std::span<const std::span<const double>> sum_of_part)
      : sums_(sum_of_part),
        parts_(static_cast<int>(sum_of_part.size())),
        layers_(static_cast<int>(sum_of_part.front().size()) - 1) {}

  std::vector<int> Run() {
    const double bound_s = UpperBound();
    const std::vector<int> furthest = Furthest(bound_s);
    MW_CHECK(!furthest.empty()) << parts_ << " parts have no end below " << bound_s << " s";
    const std::vector<int> nearest = Nearest(bound_s);
    std::vector<std::vector<int>> cuts(LayerIndex(parts_));  // per part, by end from its nearest
    std::vector<double> best = {0};                          // of the parts before, by end
    int best_first = 0;
    for (int part = 0; part < parts_; ++part) {
      const int first = nearest[LayerIndex(part)];
      const int count = furthest[LayerIndex(part)] - first + 1;
      std::vector<double> next(LayerIndex(count), kNeverSeconds);
      cuts[LayerIndex(part)].assign(LayerIndex(count), 0);
      for (int end = first; end < first + count; ++end) {
        const int begin_last = std::min(end - 1, best_first + static_cast<int>(best.size()) - 1);
        double& least_s = next[LayerIndex(end - first)];
        // Longer parts only get dearer.
        for (int begin = begin_last; begin >= best_first; --begin) {
          const double own_s = Seconds(part, begin, end);
          if (own_s >= least_s) break;
          const double value_s = std::max(best[LayerIndex(begin - best_first)], own_s);
          if (value_s >= least_s) continue;
          least_s = value_s;
          cuts[LayerIndex(part)][LayerIndex(end - first)] = begin;
        }
      }
      best = std::move(next);
      best_first = first;
    }
    std::vector<int> part_of_layer(LayerIndex(layers_), 0);
    int end = layers_;
    for (int part = parts_ - 1; part >= 0; --part) {
      const int begin = cuts[LayerIndex(part)][LayerIndex(end - nearest[LayerIndex(part)])];
      std::fill(part_of_layer.begin() + begin, part_of_layer.begin() + end, part);
      end = begin;
    }
    MW_CHECK(end == 0) << "the first part begins at layer " << end;
    return part_of_layer;
  }

 private:
  double Seconds(int part, int begin, int end) const {
    return sums_[LayerIndex(part)][LayerIndex(end)] - sums_[LayerIndex(part)][LayerIndex(begin)];
  }

  // Per part the last end that it can have when none takes longer; empty: there is none.
  std::vector<int> Furthest(double bound_s) const {
    std::vector<int> ends;
    int begin = 0;
    for (int part = 0; part < parts_; ++part) {
      const std::span<const double> sum = sums_[LayerIndex(part)];
      const auto behind = std::partition_point(sum.begin() + begin, sum.end(), [&](double until) {
        return until - sum[LayerIndex(begin)] <= bound_s;
      });
      const int end =
          std::min(static_cast<int>(behind - sum.begin()) - 1, layers_ - (parts_ - 1 - part));
      if (end <= begin) return {};
      ends.push_back(end);
      begin = end;
    }
    return begin == layers_ ? ends : std::vector<int>();
  }

  // Per part the first end that leaves no more than the parts behind it can take.
  // REQUIRES: Furthest(bound_s) is not empty.
  std::vector<int> Nearest(double bound_s) const {
    std::vector<int> ends(LayerIndex(parts_), layers_);
    int end = layers_;
    for (int part = parts_ - 1; part > 0; --part) {
      const std::span<const double> sum = sums_[LayerIndex(part)];
      const auto begin = std::partition_point(sum.begin(), sum.begin() + end, [&](double until) {
        return sum[LayerIndex(end)] - until > bound_s;
      });
      end = std::max(static_cast<int>(begin - sum.begin()), part);
      ends[LayerIndex(part - 1)] = end;
    }
    return ends;
  }

  double UpperBound() const {
    double low_s = 0;
    double high_s = 0;
    for (int part = 0; part < parts_; ++part)
      high_s = std::max(high_s, sums_[LayerIndex(part)].back());
    for (int i = 0; i < kBisections; ++i) {
      const double middle_s = low_s + (high_s - low_s) / 2;
      (Furthest(middle_s).empty() ? low_s : high_s) = middle_s;
    }
    return high_s;
  }

  const std::span<const std::span<const double>> sums_;
  const int parts_;
  const int layers_;
};

}  // namespace

std::vector<int> BalanceParts(std::span<const std::span<const double>> sum_of_part) {
  MW_CHECK(!sum_of_part.empty() && sum_of_part.size() < sum_of_part.front().size())
      << sum_of_part.size() << " parts without a layer each";
  return Balancer(sum_of_part).Run();
}

}  // namespace meshwright::planner
