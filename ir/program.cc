#include "ir/program.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "ir/lifetime.h"
#include "ir/schema.h"

namespace meshwright::ir {
namespace {

// Per value the last node that reads it; -1: none.
std::vector<int> LastReaders(const Graph& graph) {
  std::vector<int> last(graph.values.size(), -1);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (ValueId input : graph.nodes[n].inputs) last[input.index()] = static_cast<int>(n);
  }
  return last;
}

class ChainFinder {
 public:
  ChainFinder(const Graph& graph, const std::vector<int>& last_readers)
      : graph_(graph), last_readers_(last_readers), is_output_(graph.values.size(), false) {
    for (const NamedValue& output : graph.outputs) is_output_[output.value] = true;
  }

  InPlaceChains Run() {
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      chains_.first.emplace_back(static_cast<int32_t>(i));
    }
    chains_.last = chains_.first;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      for (size_t r = 0; r < node.outputs.size(); ++r) {
        const auto operand = InPlaceOperand(node.op, r);
        if (operand && *operand < node.inputs.size()) Append(n, *operand, r);
      }
    }
    for (size_t i = graph_.values.size(); i-- > 0;) {  // results come behind operands
      chains_.last[i] = chains_.last[chains_.last[i].index()];
    }
    return std::move(chains_);
  }

 private:
  // Result r of node n takes the place of the operand, where it may.
  void Append(size_t n, size_t operand, size_t r) {
    MW_CHECK(operand < graph_.nodes[n].inputs.size()) << OpName(graph_.nodes[n].op);
    const Node& node = graph_.nodes[n];
    const ValueId from = node.inputs[operand];
    const ValueId to = node.outputs[r];
    const auto accumulator = AccumulatorOf(node.op);
    const bool accumulates =
        accumulator && accumulator->result == r && accumulator->operand == operand;
    if (is_output_[from] || (is_output_[to] && !accumulates)) return;
    if (graph_.producer(from).op == Op::kInput) return;
    if (graph_.type(from).bytes() != graph_.type(to).bytes()) return;
    if (last_readers_[from.index()] != static_cast<int>(n)) return;
    if (std::count(node.inputs.begin(), node.inputs.end(), from) != 1) return;
    chains_.last[from.index()] = to;
    chains_.first[to.index()] = chains_.first[from.index()];
  }

  const Graph& graph_;
  const std::vector<int>& last_readers_;
  IdVector<ValueId, bool> is_output_;
  InPlaceChains chains_;
};

}  // namespace

const char* MemoryKindName(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kWeights:
      return "weights";
    case MemoryKind::kGradients:
      return "gradients";
    case MemoryKind::kOptimizer:
      return "optimizer";
    case MemoryKind::kActivations:
      return "activations";
    case MemoryKind::kWorkspace:
      return "workspace";
    case MemoryKind::kOther:
      return "other";
  }
  return "invalid";
}

const char* SpaceName(Space space) {
  switch (space) {
    case Space::kDevice:
      return "device";
    case Space::kHost:
      return "host";
    case Space::kDisk:
      return "disk";
  }
  return "invalid";
}

int64_t HostArenaBytes(const Program& program) {
  int64_t bytes = 0;
  for (const Slot& slot : program.slots) {
    if (slot.persistent || slot.space != Space::kHost) continue;
    bytes = std::max(bytes, slot.offset_bytes + slot.type.bytes());
  }
  return bytes;
}

bool RunsOnHost(const Program& program, const Instruction& instruction) {
  if (instruction.op != Opcode::kRun || instruction.outputs.empty()) return false;
  const auto on_host = [&](SlotId id) { return program.slot(id).space == Space::kHost; };
  return std::all_of(instruction.inputs.begin(), instruction.inputs.end(), on_host) &&
         std::all_of(instruction.outputs.begin(), instruction.outputs.end(), on_host);
}

InPlaceChains FindInPlaceChains(const Graph& executable) {
  const std::vector<int> last_readers = LastReaders(executable);
  return ChainFinder(executable, last_readers).Run();
}

OperandTimes TimesOf(const Graph& executable) {
  OperandTimes times;
  std::vector<int> last_readers = LastReaders(executable);
  const InPlaceChains chains = ChainFinder(executable, last_readers).Run();
  for (const NamedValue& output : executable.outputs) {
    MW_CHECK(output.value.valid()) << "output '" << output.name << "' of " << executable.name;
    last_readers[output.value.index()] = static_cast<int>(executable.nodes.size());
  }
  for (NodeId id : executable.NodesOf(Op::kInput)) {
    times.last_read.push_back(last_readers[executable.node(id).outputs[0].index()]);
  }
  for (const NamedValue& output : executable.outputs) {
    const NodeId maker = executable.value(chains.first[output.value.index()]).producer;
    const bool input = executable.node(maker).op == Op::kInput;
    times.first_write.push_back(input ? 0 : maker.value());
  }
  return times;
}

std::vector<int> LastTouches(const Graph& executable) {
  std::vector<int> last = LastReaders(executable);
  // Per value the first node that computes with it, behind reshapes; the node count: none.
  const auto none = static_cast<int>(executable.nodes.size());
  std::vector<int> first(executable.values.size(), none);
  for (size_t n = executable.nodes.size(); n-- > 0;) {
    const Node& node = executable.nodes[n];
    const int reader =
        node.op == Op::kReshape ? first[node.outputs[0].index()] : static_cast<int>(n);
    for (const ValueId input : node.inputs) {
      first[input.index()] = std::min(first[input.index()], reader);
    }
    if (node.op != Op::kAllToAll) continue;
    MW_CHECK(node.inputs.size() == 1 && node.outputs.size() == 1) << executable.name;
    const int result_read = first[node.outputs[0].index()];
    int& kept = last[node.inputs[0].index()];
    if (result_read != none) kept = std::max(kept, result_read - 1);
  }
  return last;
}

// A chain of values lives from the node that makes its first to the last that reads its last. Both
// instants are inclusive, so a node's results share bytes with its operands only along a chain.
WorkspacePlan PlanWorkspace(const Graph& executable) {
  WorkspacePlan plan;
  plan.offset_bytes.assign(executable.values.size(), -1);
  std::vector<bool> bound(executable.values.size(), false);
  for (const NamedValue& output : executable.outputs) bound[output.value.index()] = true;
  std::vector<Lifetime> lifetimes;
  std::vector<size_t> owners(executable.values.size(), 0);  // of last values: their lifetime
  const std::vector<int> last_readers = LastReaders(executable);
  const InPlaceChains chains = ChainFinder(executable, last_readers).Run();
  const std::vector<int> last_touches = LastTouches(executable);
  for (size_t i = 0; i < executable.values.size(); ++i) {
    const Value& value = executable.values[i];
    if (bound[i] || executable.node(value.producer).op == Op::kInput) continue;
    if (chains.last[i].index() != i) continue;
    const int last = std::max(value.producer.value(), last_touches[i]);
    owners[i] = lifetimes.size();
    lifetimes.push_back(
        {value.type.bytes(), executable.value(chains.first[i]).producer.value(), last});
  }
  const Placement placement = PlaceLifetimes(lifetimes);
  for (size_t i = 0; i < executable.values.size(); ++i) {
    const size_t end = chains.last[i].index();
    if (bound[end] || executable.node(executable.values[i].producer).op == Op::kInput) continue;
    MW_CHECK(owners[end] < placement.offset_bytes.size()) << "value " << end << " has no lifetime";
    plan.offset_bytes[i] = placement.offset_bytes[owners[end]];
  }
  plan.bytes = placement.bytes;
  return plan;
}

}  // namespace meshwright::ir
