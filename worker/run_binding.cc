#include "worker/run_binding.h"

#include <algorithm>

#include "base/check.h"
#include "device/device.h"
#include "ir/schema.h"
#include "worker/collective_node.h"

namespace meshwright::worker {
namespace {

using Area = Place::Area;

constexpr int kNone = -1;

class Binder {
 public:
  Binder(const ir::Graph& graph, std::span<const SlotId> inputs, std::span<const SlotId> outputs)
      : graph_(graph),
        inputs_(inputs),
        outputs_(outputs),
        users_(graph.Users()),
        chains_(ir::FindInPlaceChains(graph)),
        input_of_(graph.values.size(), kNone) {
    for (NodeId id : graph.NodesOf(ir::Op::kInput)) {
      const ValueId value = graph.node(id).outputs[0];
      input_of_[value.index()] = static_cast<int>(input_values_.size());
      input_values_.push_back(value);
    }
  }

  RunBinding Bind(const ir::WorkspacePlan& workspace) {
    MW_CHECK(workspace.offset_bytes.size() == graph_.values.size())
        << "a workspace of " << workspace.offset_bytes.size() << " values for " << graph_.name;
    MW_CHECK(input_values_.size() == inputs_.size() && graph_.outputs.size() == outputs_.size())
        << graph_.name << " binds " << inputs_.size() << " slots and " << outputs_.size();
    std::vector<bool> placed(graph_.values.size(), false);
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      const int input = input_of_[v];
      binding_.values.push_back(input == kNone ? Place{Area::kWorkspace, workspace.offset_bytes[v]}
                                               : Place{Area::kInput, input});
      placed[v] = input != kNone;
    }
    for (size_t j = 0; j < outputs_.size(); ++j) {
      const ValueId value = graph_.outputs[j].value;
      if (placed[value.index()]) continue;
      binding_.values[value.index()] = PlaceOutput(j, value);
      placed[value.index()] = true;
    }
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      if (placed[chains_.last[v].index()]) binding_.values[v] = PlaceOf(chains_.last[v]);
    }
    PlanCopies();
    return std::move(binding_);
  }

 private:
  bool Donated(size_t output) const {
    return std::find(inputs_.begin(), inputs_.end(), outputs_[output]) != inputs_.end();
  }

  const Place& PlaceOf(ValueId value) const { return binding_.values[value.index()]; }

  Place PlaceOutput(size_t output, ValueId value) {
    if (!Donated(output) || MayOverwrite(output, chains_.first[value.index()])) {
      return {Area::kOutput, static_cast<int64_t>(output)};
    }
    return TakeScratch(graph_.type(value).bytes());
  }

  Place TakeScratch(int64_t bytes) {
    const Place place{Area::kScratch, binding_.scratch_bytes};
    binding_.scratch_bytes += device::AlignUp(bytes);
    return place;
  }

  // True when no value in the output's slot is needed once `value`, the first of the output's
  // chain, is being written.
  bool MayOverwrite(size_t output, ValueId value) const {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (inputs_[i] != outputs_[output]) continue;
      const ValueId old = input_values_[i];
      if (IsOutput(old) || !ReadersAllow(old, value)) return false;
    }
    return true;
  }

  bool IsOutput(ValueId value) const {
    return std::any_of(graph_.outputs.begin(), graph_.outputs.end(),
                       [&](const ir::NamedValue& output) { return output.value == value; });
  }

  bool ReadersAllow(ValueId old, ValueId value) const {
    const NodeId writer = graph_.value(value).producer;
    for (NodeId reader : users_[old]) {
      if (reader > writer) return false;
      if (reader == writer && !WritesInPlace(graph_.node(writer), old, value)) return false;
    }
    return true;
  }

  // The node reads `old` only where its result `value` may overwrite it.
  bool WritesInPlace(const ir::Node& node, ValueId old, ValueId value) const {
    const auto it = std::find(node.outputs.begin(), node.outputs.end(), value);
    MW_CHECK(it != node.outputs.end()) << "%" << value << " is not made by its producer";
    const auto allowed =
        ir::InPlaceOperand(node.op, static_cast<size_t>(it - node.outputs.begin()));
    if (graph_.type(old).bytes() != graph_.type(value).bytes()) return false;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == old && allowed != i) return false;
    }
    return true;
  }

  // Outputs that are not yet in their slots. Sources that another output overwrites are saved to
  // scratch first.
  void PlanCopies() {
    std::vector<PlannedCopy> moves;
    for (size_t j = 0; j < outputs_.size(); ++j) {
      const ValueId value = graph_.outputs[j].value;
      const Place to{Area::kOutput, static_cast<int64_t>(j)};
      const Place from = binding_.values[value.index()];
      if (from == to) continue;
      const int64_t bytes = graph_.type(value).bytes();
      if (from.area != Area::kInput) {
        moves.push_back({from, to, bytes});
        continue;
      }
      const SlotId slot = inputs_[static_cast<size_t>(from.position)];
      if (slot == outputs_[j]) continue;
      const bool overwritten = std::find(outputs_.begin(), outputs_.end(), slot) != outputs_.end();
      if (!overwritten) {
        moves.push_back({from, to, bytes});
        continue;
      }
      const Place saved = TakeScratch(bytes);
      binding_.copies.push_back({from, saved, bytes});
      moves.push_back({saved, to, bytes});
    }
    binding_.copies.insert(binding_.copies.end(), moves.begin(), moves.end());
  }

  const ir::Graph& graph_;
  const std::span<const SlotId> inputs_;
  const std::span<const SlotId> outputs_;
  const IdVector<ValueId, std::vector<NodeId>> users_;
  const ir::InPlaceChains chains_;
  std::vector<int> input_of_;  // per value, its input index
  std::vector<ValueId> input_values_;
  RunBinding binding_;
};

}  // namespace

RunBinding BindRun(const ir::Graph& graph, const ir::WorkspacePlan& workspace,
                   std::span<const SlotId> inputs, std::span<const SlotId> outputs) {
  return Binder(graph, inputs, outputs).Bind(workspace);
}

}  // namespace meshwright::worker
