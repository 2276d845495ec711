// Emits the groups as fused nodes.
#include <algorithm>
#include <map>
#include <utility>

#include "compile/compile.h"
#include "compile/groups.h"
#include "ir/builder.h"
#include "ir/fused.h"
#include "ir/rewrite.h"

namespace meshwright::compile {
namespace {

class Fuser {
 public:
  explicit Fuser(const ir::Graph& graph)
      : graph_(graph),
        users_(graph.Users()),
        groups_(FindGroups(graph)),
        group_of_(graph.nodes.size(), -1),
        builder_(graph.name),
        map_(graph.values.size()) {
    for (size_t g = 0; g < groups_.size(); ++g) {
      for (const size_t member : groups_[g].members) group_of_[member] = static_cast<int>(g);
    }
  }

  Result<ir::Graph> Run() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (group_of_[n] < 0) {
        ir::CopyNode(builder_, graph_, graph_.nodes[n], map_);
      } else if (Group& group = groups_[static_cast<size_t>(group_of_[n])];
                 group.members.back() == n) {
        EmitGroup(group);
      }
    }
    for (const ir::NamedValue& output : graph_.outputs) {
      builder_.SetOutput(output.name, Mapped(output.value));
    }
    return builder_.Finish();
  }

 private:
  ValueId& Mapped(ValueId id) { return map_[id]; }

  // Whether something outside the group reads the value.
  bool IsResult(ValueId value, int group) const {
    const auto is_output = [&](const ir::NamedValue& output) { return output.value == value; };
    if (std::any_of(graph_.outputs.begin(), graph_.outputs.end(), is_output)) return true;
    const std::vector<NodeId>& users = users_[value];
    return std::any_of(users.begin(), users.end(),
                       [&](NodeId user) { return group_of_[user.index()] != group; });
  }

  void EmitGroup(const Group& group) {
    const int index = group_of_[group.members.front()];
    std::map<ValueId, int> numbers;  // values of this graph -> values of the body
    std::vector<ValueId> operands;
    for (const size_t member : group.members) {
      for (ValueId input : graph_.nodes[member].inputs) {
        const auto maker = graph_.value(input).producer.index();
        if (group_of_[maker] == index || numbers.count(input) != 0) continue;
        numbers[input] = static_cast<int>(operands.size());
        operands.push_back(Mapped(input));
      }
    }
    ir::FusedBody body;
    std::vector<ValueId> results;
    int next = static_cast<int>(operands.size());
    for (const size_t member : group.members) {
      const ir::Node& node = graph_.nodes[member];
      ir::FusedStep step{node.op, {}, node.attrs};
      for (ValueId input : node.inputs) step.operands.push_back(numbers.at(input));
      for (ValueId output : node.outputs) {
        if (IsResult(output, index)) {
          body.results.push_back(next);
          results.push_back(output);
        }
        numbers[output] = next++;
      }
      body.steps.push_back(std::move(step));
    }
    const ir::Node& first = graph_.nodes[group.members.front()];
    builder_.SetLayer(first.layer);
    builder_.SetPhase(first.phase);
    ir::Attrs attrs;
    ir::SetFusedBody(body, attrs);
    const std::vector<ValueId> outputs =
        builder_.Add(ir::Op::kFused, std::move(operands), std::move(attrs));
    for (size_t i = 0; i < results.size(); ++i) Mapped(results[i]) = outputs[i];
  }

  const ir::Graph& graph_;
  const IdVector<ValueId, std::vector<NodeId>> users_;
  std::vector<Group> groups_;
  std::vector<int> group_of_;
  ir::Builder builder_;
  IdVector<ValueId, ValueId> map_;
};

}  // namespace

Result<ir::Graph> FuseChains(const ir::Graph& graph) { return Fuser(graph).Run(); }

}  // namespace meshwright::compile
