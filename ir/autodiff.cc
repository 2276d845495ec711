#include "ir/autodiff.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "ir/builder.h"
#include "ir/loss_scale.h"
#include "ir/param_groups.h"
#include "ir/schema.h"

namespace meshwright::ir {
namespace {

// One term of a gradient and the layer of the node that made it.
struct Contribution {
  ValueId value;
  int layer = -1;
};

// Walks nodes from the last to the first and appends the gradients of their operands. Each value's
// gradient is the sum of what its users gave.
class BackwardPass {
 public:
  // Where the appended nodes belong: to the node that they differentiate, or where the builder is.
  enum class Place : uint8_t { kOfNode, kOfBuilder };

  // Nodes from `first_node` to the builder's last one, as it is now.
  BackwardPass(Builder& builder, size_t first_node, std::span<const ValueId> wrt, Place place)
      : builder_(builder),
        first_node_(first_node),
        nodes_(builder.graph().nodes.size()),
        place_(place),
        terms_(builder.graph().values.size()),
        wanted_(builder.graph().values.size(), false),
        depends_(builder.graph().values.size(), false) {
    for (const ValueId id : wrt) {
      wanted_[id] = depends_[id] = IsFloating(builder.type(id).dtype);
    }
    MarkDependent();
  }

  void Seed(ValueId value, ValueId gradient, int layer) {
    if (depends_[value]) terms_[value].push_back({gradient, layer});
  }

  // From the last node to the first.
  Status Run() {
    for (size_t i = nodes_; i-- > first_node_;) {
      // A copy: the builder's nodes move.
      const Node node = builder_.graph().nodes[i];
      MW_TRY(Visit(i, node));
    }
    return OkStatus();
  }

  // The sum of the terms of a value, in use order; an invalid id when there are none. Terms that
  // agree on a layer are summed in it: then one tensor, not one per use, crosses back over a stage
  // boundary.
  ValueId Gradient(ValueId value, int producer_layer, Phase mixed_phase) {
    std::vector<Contribution>& terms = terms_[value];
    if (terms.empty()) return ValueId();
    if (terms.size() == 1) return terms[0].value;
    const bool one_layer = std::all_of(terms.begin(), terms.end(), [&](const Contribution& term) {
      return term.layer == terms[0].layer;
    });
    std::vector<ValueId> inputs;
    for (auto it = terms.rbegin(); it != terms.rend(); ++it) inputs.push_back(it->value);
    if (one_layer) {
      SetPlace(terms[0].layer, Phase::kBackward);
    } else {
      SetPlace(producer_layer, mixed_phase);
    }
    const ValueId sum = builder_.AddOne(Op::kSum, inputs);
    terms = {{sum, one_layer ? terms[0].layer : producer_layer}};
    return sum;
  }

 private:
  // A value depends on those wanted when it is floating point and an operand of its producer does.
  void MarkDependent() {
    const Graph& graph = builder_.graph();
    for (size_t i = first_node_; i < nodes_; ++i) {
      const Node& node = graph.nodes[i];
      const bool depends = !StopsGradient(node.op) && AnyDepends(node);
      if (!depends) continue;
      for (ValueId id : node.outputs) depends_[id] = IsFloating(graph.type(id).dtype);
    }
  }

  bool AnyDepends(const Node& node) const {
    return std::any_of(node.inputs.begin(), node.inputs.end(),
                       [&](ValueId id) { return depends_[id]; });
  }

  void SetPlace(int layer, Phase phase) {
    if (place_ == Place::kOfBuilder) return;
    builder_.SetLayer(layer);
    builder_.SetPhase(phase);
  }

  Status Visit(size_t index, const Node& node) {
    const bool is_wanted = std::any_of(node.outputs.begin(), node.outputs.end(),
                                       [&](ValueId id) { return wanted_[id]; });
    const bool passes = !StopsGradient(node.op) && AnyDepends(node);
    if (!passes && !is_wanted) return OkStatus();
    std::vector<ValueId> grads;
    bool reached = false;
    // A param's gradients of several layers are summed once per step.
    const bool is_param = node.op == Op::kParam;
    for (ValueId id : node.outputs) {
      grads.push_back(
          Gradient(id, is_param ? -1 : node.layer, is_param ? Phase::kUpdate : Phase::kBackward));
      reached = reached || grads.back().valid();
    }
    if (!reached || !passes) return builder_.status();
    SetPlace(node.layer, Phase::kBackward);
    std::vector<bool> asked;
    for (ValueId id : node.inputs) asked.push_back(depends_[id]);
    const auto made = GradientOf(builder_, node, grads, asked);
    if (!made) {
      return made.error().WithContext(
          fmt::format("graph \"{}\", node {} {}", builder_.graph().name, index, OpName(node.op)));
    }
    const std::vector<ValueId>& inputs = *made;
    MW_CHECK(inputs.size() == node.inputs.size())
        << OpName(node.op) << " has " << inputs.size() << " gradients for " << node.inputs.size()
        << " operands";
    // Nodes are visited last to first, so operands are too: Gradient() reverses the terms into use
    // order.
    for (size_t i = node.inputs.size(); i-- > 0;) {
      if (inputs[i].valid() && asked[i]) {
        terms_[node.inputs[i]].push_back({inputs[i], node.layer});
      }
    }
    return OkStatus();
  }

  Builder& builder_;
  const size_t first_node_;
  const size_t nodes_;
  const Place place_;
  IdVector<ValueId, std::vector<Contribution>> terms_;  // per value, last use first
  IdVector<ValueId, bool> wanted_;
  IdVector<ValueId, bool> depends_;
};

Status CheckLossOutputs(const Graph& loss) {
  for (const char* name : {"loss_sum", "count"}) {
    const ValueId id = loss.Output(name);
    if (!id.valid()) {
      return InvalidArgument(fmt::format("graph \"{}\" has no output \"{}\"", loss.name, name));
    }
    const TensorType& type = loss.type(id);
    if (type.rank() != 0 || !IsFloating(type.dtype)) {
      return InvalidArgument(
          fmt::format("output \"{}\" of graph \"{}\" is {}, must be a floating point scalar", name,
                      loss.name, type.ToString()));
    }
  }
  return OkStatus();
}

// The graph with the gradients of its params as outputs.
Result<Graph> WithGradients(const Graph& loss) {
  MW_TRY(CheckLossOutputs(loss));
  Builder builder(loss);
  std::vector<ValueId> params;
  for (const NodeId id : loss.NodesOf(Op::kParam)) {
    // The loss scale is renewed by a rule of its own.
    if (loss.node(id).attrs.Str("name") == kLossScaleState) continue;
    if (!IsFrozen(loss.node(id))) params.push_back(loss.node(id).outputs[0]);
  }
  BackwardPass pass(builder, 0, params, BackwardPass::Place::kOfNode);
  const ValueId scaled = loss.Output(kScaledLossOutput);
  const ValueId loss_sum = scaled.valid() ? scaled : loss.Output("loss_sum");
  const int layer = loss.producer(loss_sum).layer;
  builder.SetLayer(layer);
  builder.SetPhase(Phase::kBackward);
  const ValueId one = builder.AddOne(Op::kConstant, {}, {{"value", 1.0}}, {loss.type(loss_sum)});
  pass.Seed(loss_sum, one, layer);
  MW_TRY(pass.Run());
  for (const ValueId param : params) {
    const std::string name = loss.producer(param).attrs.Str("name");
    const ValueId grad = pass.Gradient(param, -1, Phase::kUpdate);
    if (!grad.valid()) {
      return Fail(InvalidArgument(fmt::format(
          "param \"{}\" does not reach output \"loss_sum\" of graph \"{}\": remove it or use it",
          name, loss.name)));
    }
    builder.SetOutput("grad/" + name, grad);
  }
  return builder.Finish();
}

// Drops the nodes behind the first `kept` that no output needs, and renumbers. Gradients of
// untrained operands go this way.
Graph DropDead(const Graph& graph, size_t kept) {
  MW_CHECK(kept <= graph.nodes.size()) << kept << " of " << graph.nodes.size() << " nodes are kept";
  std::vector<bool> live(graph.nodes.size(), false);
  for (const NamedValue& output : graph.outputs) {
    live[graph.value(output.value).producer.index()] = true;
  }
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    live[i] = live[i] || i < kept;
    if (!live[i]) continue;
    for (ValueId id : graph.nodes[i].inputs) {
      live[graph.value(id).producer.index()] = true;
    }
  }
  Graph result;
  result.name = graph.name;
  IdVector<ValueId, ValueId> renamed(graph.values.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!live[i]) continue;
    const NodeId node_id(static_cast<int32_t>(result.nodes.size()));
    Node node = graph.nodes[i];
    for (ValueId& id : node.inputs) id = renamed[id];
    for (ValueId& id : node.outputs) {
      const ValueId fresh(static_cast<int32_t>(result.values.size()));
      result.values.push_back(Value{graph.type(id), node_id});
      renamed[id] = fresh;
      id = fresh;
    }
    result.nodes.push_back(std::move(node));
  }
  for (const NamedValue& output : graph.outputs) {
    MW_CHECK(renamed[output.value].valid()) << "output '" << output.name << "' was dropped";
    result.outputs.push_back(NamedValue{output.name, renamed[output.value], output.reduction});
  }
  return result;
}

Status CheckIsFloat(const Builder& builder, ValueId id, std::string_view what) {
  const Graph& graph = builder.graph();
  if (id.index() >= graph.values.size()) {
    return InvalidArgument(
        fmt::format("{}: {} is not a value of graph \"{}\"", what, id.value(), graph.name));
  }
  if (IsFloating(graph.type(id).dtype)) return OkStatus();
  return InvalidArgument(
      fmt::format("{} is {}, must be floating point", what, graph.type(id).ToString()));
}

}  // namespace

Result<Graph> Differentiate(const Graph& loss) {
  MW_ASSIGN_OR_RETURN(const Graph graph, WithGradients(loss));
  return DropDead(graph, loss.nodes.size());
}

Result<std::vector<ValueId>> BackPropagate(Builder& builder, std::span<const Seed> seeds,
                                           std::span<const ValueId> wrt, size_t first_node) {
  MW_CHECK(first_node <= builder.graph().nodes.size()) << "node " << first_node;
  BackwardPass pass(builder, first_node, wrt, BackwardPass::Place::kOfBuilder);
  for (const Seed& seed : seeds) pass.Seed(seed.value, seed.gradient, builder.layer());
  MW_TRY(pass.Run());
  std::vector<ValueId> grads;
  for (const ValueId id : wrt) {
    grads.push_back(pass.Gradient(id, builder.layer(), builder.phase()));
  }
  MW_TRY(builder.status());
  return grads;
}

Result<std::vector<ValueId>> AppendGradients(Builder& builder, ValueId loss,
                                             std::span<const ValueId> wrt) {
  MW_TRY(builder.status());
  MW_TRY(CheckIsFloat(builder, loss, "the loss"));
  for (const ValueId id : wrt) MW_TRY(CheckIsFloat(builder, id, "a value to differentiate by"));
  const TensorType type = builder.type(loss);
  if (type.rank() != 0) {
    return Fail(InvalidArgument(fmt::format("the loss is {}, must be a scalar", type.ToString())));
  }
  const ValueId one = builder.AddOne(Op::kConstant, {}, {{"value", 1.0}}, {type});
  const Seed seeds[] = {{loss, one}};
  MW_ASSIGN_OR_RETURN(std::vector<ValueId> grads, BackPropagate(builder, seeds, wrt));
  for (size_t i = 0; i < grads.size(); ++i) {
    if (grads[i].valid()) continue;
    grads[i] = builder.AddOne(Op::kConstant, {}, {{"value", 0.0}}, {builder.type(wrt[i])});
  }
  return grads;
}

}  // namespace meshwright::ir
