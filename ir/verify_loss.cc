// What a loss graph must be for the planner to make a training step of it.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ir/layers.h"
#include "ir/param_groups.h"
#include "ir/schema.h"
#include "ir/verify.h"

namespace meshwright::ir {
namespace {

// Why an op has no place in a loss graph; "" when it has one.
std::string_view Misplaced(Op op) {
  switch (op) {
    case Op::kInput:
      return "nobody binds it in a training job; use a feed, a constant or a param";
    case Op::kAllReduce:
    case Op::kAllGather:
    case Op::kReduceScatter:
    case Op::kAllToAll:
    case Op::kRingShift:
    case Op::kShardSlice:
      return "collectives are made by the planner; write the loss for one device";
    case Op::kClipMultiplier:
    case Op::kAdamW:
    case Op::kSgd:
      return "the update is made from the job's optimizer; remove it";
    default:
      return "";
  }
}

class LossVerifier {
 public:
  explicit LossVerifier(const Graph& loss)
      : loss_(loss),
        users_(loss.Users()),
        layers_(ComputedLayers(loss)),
        trained_(TrainedValues(loss)) {}

  Status Run() const {
    for (size_t i = 0; i < loss_.nodes.size(); ++i) {
      const Node& node = loss_.nodes[i];
      Status status = CheckNode(node);
      if (status.ok()) status = CheckEdges(i);
      if (status.ok()) continue;
      return AtNode(i, status);
    }
    MW_TRY(CheckNumbering());
    MW_TRY(CheckOutputNames());
    MW_TRY(CheckGradients());
    return CheckCount();
  }

 private:
  Status AtNode(size_t index, const Status& status) const {
    return status.WithContext(fmt::format("loss graph \"{}\", node {} {}", loss_.name, index,
                                          OpName(loss_.nodes[index].op)));
  }

  Status CheckNode(const Node& node) const {
    if (const std::string_view why = Misplaced(node.op); !why.empty()) {
      return InvalidArgument(std::string(why));
    }
    if (node.phase != Phase::kForward) {
      return InvalidArgument(
          "is not a forward node; a loss graph is all forward, differentiation appends the rest");
    }
    return node.op == Op::kParam ? CheckParam(node) : OkStatus();
  }

  Status CheckParam(const Node& node) const {
    const std::string name = node.attrs.Str("name");
    if (users_[node.outputs[0]].empty()) {
      return InvalidArgument(fmt::format("no node reads param \"{}\"; use it or remove it", name));
    }
    if (node.attrs.Int("state") != 0 || name.starts_with("opt.")) {
      return InvalidArgument(fmt::format(
          "param \"{}\": state=1 and names that begin with \"opt.\" are the optimizer's; rename it",
          name));
    }
    return OkStatus();
  }

  // An activation cannot go back to an earlier stage.
  Status CheckEdges(size_t index) const {
    const Node& node = loss_.nodes[index];
    for (ValueId input : node.inputs) {
      const int from = layers_[loss_.value(input).producer.index()];
      if (layers_[index] < 0 || from <= layers_[index]) continue;
      return InvalidArgument(
          fmt::format("of layer {} reads %{} of layer {}; layers must not decrease from operand to "
                      "user: give it layer {} with Builder::SetLayer",
                      layers_[index], input.value(), from, from));
    }
    return OkStatus();
  }

  Status CheckNumbering() const {
    std::set<int> used;
    for (const Node& node : loss_.nodes) {
      if (node.layer >= 0) used.insert(node.layer);
    }
    int next = 0;
    for (int layer : used) {
      if (layer != next) {
        return InvalidArgument(fmt::format(
            "loss graph \"{}\" has a layer {} but no layer {}; number the blocks 0..n-1 "
            "with Builder::SetLayer",
            loss_.name, layer, next));
      }
      ++next;
    }
    return OkStatus();
  }

  Status CheckOutputNames() const {
    for (const NamedValue& output : loss_.outputs) {
      static const std::set<std::string> kOwn = {"loss", "grad_norm", "lr", "tokens", "loss_scale"};
      const bool taken = kOwn.contains(output.name) || output.name.starts_with("grad/") ||
                         output.name.starts_with("update/");
      if (!taken) continue;
      return InvalidArgument(fmt::format(
          "loss graph \"{}\" has an output \"{}\", which is the name of what a training "
          "step gives out itself; rename it",
          loss_.name, output.name));
    }
    return OkStatus();
  }

  // Values that gradients flow through: each node that makes one of a trained value needs one.
  Status CheckGradients() const {
    IdVector<ValueId, bool> wanted = Only(loss_.Output("loss_sum"));
    for (size_t i = loss_.nodes.size(); i-- > 0;) {
      const Node& node = loss_.nodes[i];
      if (!AnyOf(node.outputs, wanted) || !AnyOf(node.inputs, trained_)) continue;
      if (!HasGradient(node.op)) {
        return AtNode(i, InvalidArgument("has no gradient, but the loss depends on params through "
                                         "it; use ops that have one"));
      }
      for (const ValueId input : node.inputs) {
        if (trained_[input]) wanted[input] = true;
      }
    }
    return OkStatus();
  }

  // The gradients are those of loss_sum alone.
  Status CheckCount() const {
    IdVector<ValueId, bool> wanted = Only(loss_.Output("count"));
    for (size_t i = loss_.nodes.size(); i-- > 0;) {
      const Node& node = loss_.nodes[i];
      if (!AnyOf(node.outputs, wanted)) continue;
      if (node.op == Op::kParam) {
        return InvalidArgument(
            fmt::format("output \"count\" of loss graph \"{}\" depends on param \"{}\", but "
                        "gradients are those "
                        "of \"loss_sum\" alone; make it of labels and constants",
                        loss_.name, node.attrs.Str("name")));
      }
      // How many labels count is not a matter of the logits.
      const bool of_labels = node.op == Op::kCrossEntropy && !wanted[node.outputs[0]];
      for (size_t k = of_labels ? 1 : 0; k < node.inputs.size(); ++k) {
        wanted[node.inputs[k]] = true;
      }
    }
    return OkStatus();
  }

  static bool AnyOf(const std::vector<ValueId>& values, const IdVector<ValueId, bool>& marks) {
    return std::any_of(values.begin(), values.end(), [&](ValueId id) { return marks[id]; });
  }

  // A mark for one value; none where the graph lacks the output.
  IdVector<ValueId, bool> Only(ValueId value) const {
    IdVector<ValueId, bool> marks(loss_.values.size(), false);
    if (value.valid()) marks[value] = true;
    return marks;
  }

  // Floating point values that depend on a trained param.
  static IdVector<ValueId, bool> TrainedValues(const Graph& loss) {
    IdVector<ValueId, bool> trained(loss.values.size(), false);
    for (const Node& node : loss.nodes) {
      const bool depends = node.op == Op::kParam
                               ? !IsFrozen(node)
                               : !StopsGradient(node.op) && AnyOf(node.inputs, trained);
      for (const ValueId id : node.outputs) {
        trained[id] = depends && IsFloating(loss.type(id).dtype);
      }
    }
    return trained;
  }

  const Graph& loss_;
  const IdVector<ValueId, std::vector<NodeId>> users_;
  const std::vector<int> layers_;
  const IdVector<ValueId, bool> trained_;
};

}  // namespace

Status VerifyLossGraph(const Graph& loss) { return LossVerifier(loss).Run(); }

}  // namespace meshwright::ir
