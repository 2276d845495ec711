#include "ir/autodiff.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/builder.h"
#include "ir/schema.h"

namespace meshwright::ir {
namespace {

size_t At(ValueId id) { return static_cast<size_t>(id.value()); }

// One term of a gradient and the layer of the node that made it.
struct Contribution {
  ValueId value;
  int layer = -1;
};

class Differentiator {
 public:
  explicit Differentiator(const Graph& loss)
      : loss_(loss),
        builder_(loss),
        terms_(loss.values.size()),
        trained_(loss.values.size(), false) {}

  Result<Graph> Run() {
    MW_TRY(CheckOutputs());
    MarkTrained();
    Seed();
    std::vector<NamedValue> grads;
    for (size_t i = loss_.nodes.size(); i-- > 0;) {
      const Node& node = loss_.nodes[i];
      if (node.op == Op::kParam) {
        MW_ASSIGN_OR_RETURN(NamedValue grad, ParamGradient(node));
        grads.push_back(std::move(grad));
      } else {
        MW_TRY(Visit(node));
      }
    }
    std::reverse(grads.begin(), grads.end());
    for (NamedValue& grad : grads) builder_.SetOutput(std::move(grad.name), grad.value);
    return builder_.Finish();
  }

 private:
  Status CheckOutputs() const {
    for (const char* name : {"loss_sum", "count"}) {
      const ValueId id = loss_.Output(name);
      if (!id.valid()) {
        return InvalidArgument(fmt::format("graph \"{}\" has no output \"{}\"", loss_.name, name));
      }
      const TensorType& type = loss_.type(id);
      if (type.rank() != 0 || !IsFloating(type.dtype)) {
        return InvalidArgument(
            fmt::format("output \"{}\" of graph \"{}\" is {}, must be a floating point scalar",
                        name, loss_.name, type.ToString()));
      }
    }
    return OkStatus();
  }

  // A value is trained when it is floating point and depends on a param. Only those get gradients.
  void MarkTrained() {
    for (const Node& node : loss_.nodes) {
      const bool trained =
          node.op == Op::kParam || std::any_of(node.inputs.begin(), node.inputs.end(),
                                               [&](ValueId id) { return trained_[At(id)]; });
      for (ValueId id : node.outputs) {
        trained_[At(id)] = trained && IsFloating(loss_.type(id).dtype);
      }
    }
  }

  void Seed() {
    const ValueId loss = loss_.Output("loss_sum");
    const int layer = loss_.producer(loss).layer;
    SetPlace(layer, Phase::kBackward);
    const ValueId one = builder_.AddOne(Op::kConstant, {}, {{"value", 1.0}}, {loss_.type(loss)});
    terms_[At(loss)].push_back({one, layer});
  }

  void SetPlace(int layer, Phase phase) {
    builder_.SetLayer(layer);
    builder_.SetPhase(phase);
  }

  // The sum of the terms of a value, in use order; an invalid id when there are none. Terms that
  // agree on a layer are summed in it: then one tensor, not one per use, crosses back over a stage
  // boundary.
  ValueId Gradient(ValueId value, int producer_layer, Phase mixed_phase) {
    std::vector<Contribution>& terms = terms_[At(value)];
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
    return builder_.AddOne(Op::kSum, inputs);
  }

  Result<NamedValue> ParamGradient(const Node& node) {
    const std::string name = node.attrs.Str("name");
    const ValueId grad = Gradient(node.outputs[0], -1, Phase::kUpdate);
    MW_TRY(builder_.status());
    if (!grad.valid()) {
      return Fail(InvalidArgument(fmt::format(
          "param \"{}\" does not reach output \"loss_sum\" of graph \"{}\": remove it or use it",
          name, loss_.name)));
    }
    return NamedValue{"grad/" + name, grad};
  }

  Status Visit(const Node& node) {
    const bool wanted = std::any_of(node.inputs.begin(), node.inputs.end(),
                                    [&](ValueId id) { return trained_[At(id)]; });
    if (!wanted) return OkStatus();
    std::vector<ValueId> grads;
    bool reached = false;
    for (ValueId id : node.outputs) {
      grads.push_back(Gradient(id, node.layer, Phase::kBackward));
      reached = reached || grads.back().valid();
    }
    if (!reached) return builder_.status();
    SetPlace(node.layer, Phase::kBackward);
    const auto made = GradientOf(builder_, node, grads);
    if (!made) {
      return made.error().WithContext(fmt::format("graph \"{}\", node {} {}", loss_.name,
                                                  &node - loss_.nodes.data(), OpName(node.op)));
    }
    const std::vector<ValueId>& inputs = *made;
    // Nodes are visited last to first, so operands are too: Gradient() reverses the terms into use
    // order.
    for (size_t i = node.inputs.size(); i-- > 0;) {
      if (inputs[i].valid() && trained_[At(node.inputs[i])]) {
        terms_[At(node.inputs[i])].push_back({inputs[i], node.layer});
      }
    }
    return OkStatus();
  }

  const Graph& loss_;
  Builder builder_;
  std::vector<std::vector<Contribution>> terms_;  // per value of loss_, last use first
  std::vector<bool> trained_;
};

// Drops the nodes behind the first `kept` that no output needs, and renumbers. Gradients of
// untrained operands go this way.
Graph DropDead(const Graph& graph, size_t kept) {
  std::vector<bool> live(graph.nodes.size(), false);
  for (const NamedValue& output : graph.outputs) {
    live[static_cast<size_t>(graph.value(output.value).producer.value())] = true;
  }
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    live[i] = live[i] || i < kept;
    if (!live[i]) continue;
    for (ValueId id : graph.nodes[i].inputs) {
      live[static_cast<size_t>(graph.value(id).producer.value())] = true;
    }
  }
  Graph result;
  result.name = graph.name;
  std::vector<ValueId> renamed(graph.values.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!live[i]) continue;
    const NodeId node_id(static_cast<int32_t>(result.nodes.size()));
    Node node = graph.nodes[i];
    for (ValueId& id : node.inputs) id = renamed[At(id)];
    for (ValueId& id : node.outputs) {
      const ValueId fresh(static_cast<int32_t>(result.values.size()));
      result.values.push_back(Value{graph.type(id), node_id});
      renamed[At(id)] = fresh;
      id = fresh;
    }
    result.nodes.push_back(std::move(node));
  }
  for (const NamedValue& output : graph.outputs) {
    result.outputs.push_back(NamedValue{output.name, renamed[At(output.value)]});
  }
  return result;
}

}  // namespace

Result<Graph> Differentiate(const Graph& loss) {
  MW_ASSIGN_OR_RETURN(const Graph graph, Differentiator(loss).Run());
  return DropDead(graph, loss.nodes.size());
}

}  // namespace meshwright::ir
