// What a loss graph must be for the planner to make a training step of it.
#include <fmt/format.h>

#include <set>

#include "ir/layers.h"
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
      : loss_(loss), users_(loss.Users()), layers_(ComputedLayers(loss)) {}

  Status Run() const {
    for (size_t i = 0; i < loss_.nodes.size(); ++i) {
      const Node& node = loss_.nodes[i];
      Status status = CheckNode(node);
      if (status.ok()) status = CheckEdges(i);
      if (status.ok()) continue;
      return status.WithContext(
          fmt::format("loss graph \"{}\", node {} {}", loss_.name, i, OpName(node.op)));
    }
    return CheckNumbering();
  }

 private:
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
    if (users_[static_cast<size_t>(node.outputs[0].value())].empty()) {
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
      const int from = layers_[static_cast<size_t>(loss_.value(input).producer.value())];
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

  const Graph& loss_;
  const std::vector<std::vector<NodeId>> users_;
  const std::vector<int> layers_;
};

}  // namespace

Status VerifyLossGraph(const Graph& loss) { return LossVerifier(loss).Run(); }

}  // namespace meshwright::ir
