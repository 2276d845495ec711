#include "ir/verify_facts.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "ir/schema_table.h"
#include "ir/text.h"
#include "ir/text_lexer.h"
#include "ir/verify.h"

namespace meshwright::ir {
namespace {

bool IsConstantSource(Op op) {
  return op == Op::kConstant || op == Op::kRandomNormal || op == Op::kLearningRate;
}

// Weights are cast once, before the microbatches, in the form that these want.
Cadence CadenceOf(const Graph& graph) {
  const bool sweeps = std::any_of(graph.nodes.begin(), graph.nodes.end(),
                                  [](const Node& node) { return node.attrs.Has("sweep"); });
  if (sweeps) return Cadence::kSweep;
  bool only_before = true;
  bool casts = false;
  bool moves = false;
  bool only_update = true;
  bool only_inputs = true;
  for (const Node& node : graph.nodes) {
    const bool source = IsConstantSource(node.op);
    const bool update = node.op == Op::kInput || node.phase == Phase::kUpdate;
    const bool move = node.op == Op::kShardSlice || node.op == Op::kAllGather;
    const bool weight_cast = update && (node.op == Op::kInput || node.op == Op::kCast || move);
    only_before = only_before && (source || weight_cast);
    casts = casts || node.op == Op::kCast;
    moves = moves || move;
    only_inputs = only_inputs && node.op == Op::kInput;
    only_update = only_update && (source || update);
  }
  if (only_before && !only_inputs && (casts || !moves)) return Cadence::kOnceBefore;
  return only_update ? Cadence::kOnceAfter : Cadence::kPerMicrobatch;
}

bool IsTransfer(Op op) {
  return op == Op::kAllReduce || op == Op::kAllGather || op == Op::kReduceScatter ||
         op == Op::kAllToAll || op == Op::kRingShift || op == Op::kShardSlice;
}

int64_t ImpliedRatio(const Graph& graph, const Node& node) {
  if (node.op == Op::kAllReduce || node.op == Op::kRingShift) return 0;
  const Dims& from = graph.type(node.inputs[0]).dims;
  const Dims& to = graph.type(node.outputs[0]).dims;
  if (node.op == Op::kAllToAll) {
    const auto split = static_cast<size_t>(node.attrs.Int("split_dim"));
    return from[split] / to[split];
  }
  const auto dim = static_cast<size_t>(node.attrs.Int("dim"));
  return node.op == Op::kAllGather ? to[dim] / from[dim] : from[dim] / to[dim];
}

CollectiveFact DescribeCollective(const Graph& graph, int index) {
  const Node& node = graph.nodes[static_cast<size_t>(index)];
  MW_CHECK(IsTransfer(node.op)) << OpName(node.op) << " moves nothing between devices";
  CollectiveFact fact;
  fact.node = index;
  fact.op = node.op;
  fact.axes = node.attrs.Strs("axes");
  fact.ratio = ImpliedRatio(graph, node);
  std::vector<TensorType> types;
  for (ValueId id : node.inputs) types.push_back(graph.type(id));
  fact.signature = fmt::format("{}({}) dim={} split={} concat={} by={} kind={}", OpName(node.op),
                               FormatTypes(types), node.attrs.Int("dim", -1),
                               node.attrs.Int("split_dim", -1), node.attrs.Int("concat_dim", -1),
                               node.attrs.Int("by"), node.attrs.Str("kind", "sum"));
  return fact;
}

}  // namespace

bool ExecutableFacts::MayReplace(size_t i, size_t o) const {
  MW_CHECK(i < inputs.size() && o < graph->outputs.size())
      << graph->name << " has no input " << i << " or output " << o;
  const ValueId from = inputs[i];
  if (from == graph->outputs[o].value) return true;
  const ValueId to = chains.first[graph->outputs[o].value.index()];
  const NodeId maker = graph->value(to).producer;
  const Node& node = graph->node(maker);
  if (node.op == Op::kInput) return false;
  for (NodeId user : users[from]) {
    if (user < maker) continue;
    if (user > maker) return false;
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      if (node.inputs[k] != from) continue;
      const auto r = std::find(node.outputs.begin(), node.outputs.end(), to) - node.outputs.begin();
      if (InPlaceOperand(node.op, static_cast<size_t>(r)) != k) return false;
    }
  }
  return true;
}

Result<std::shared_ptr<const ExecutableFacts>> CollectFacts(const Graph& graph) {
  MW_TRY(VerifyGraph(graph));
  auto facts = std::make_shared<ExecutableFacts>();
  facts->graph = &graph;
  facts->cadence = CadenceOf(graph);
  facts->users = graph.Users();
  facts->chains = FindInPlaceChains(graph);
  facts->times = TimesOf(graph);
  facts->workspace_bytes = PlanWorkspace(graph).bytes;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.op == Op::kInput) {
      facts->inputs.push_back(node.outputs[0]);
      facts->input_names.push_back(node.attrs.Str("name"));
    }
    if (node.op == Op::kParam) {
      return Fail(InvalidArgument(fmt::format(
          "graph \"{}\": an executable reads memory through `input` nodes; node {} is a param",
          graph.name, i)));
    }
    if (IsTransfer(node.op)) {
      facts->collectives.push_back(DescribeCollective(graph, static_cast<int>(i)));
    }
  }
  return std::shared_ptr<const ExecutableFacts>(std::move(facts));
}

Result<std::vector<int>> GroupOf(const Program& program, const std::vector<std::string>& axes) {
  for (const std::string& name : axes) {
    const bool known = std::any_of(program.axes.begin(), program.axes.end(),
                                   [&](const MeshAxis& axis) { return axis.name == name; });
    if (!known) return Fail(InvalidArgument(fmt::format("no mesh axis \"{}\"", name)));
  }
  std::vector<int> group;
  for (size_t index = 0; index < program.mesh_devices.size(); ++index) {
    int64_t rest = static_cast<int64_t>(index);
    bool member = true;
    for (size_t a = program.axes.size(); a-- > 0;) {
      const int64_t coord = rest % program.axes[a].size;
      rest /= program.axes[a].size;
      const bool free = std::find(axes.begin(), axes.end(), program.axes[a].name) != axes.end();
      member = member && (free || coord == program.coords[a]);
    }
    if (member) group.push_back(program.mesh_devices[index].value());
  }
  std::sort(group.begin(), group.end());
  return group;
}

Result<Box> ResolveBox(const Box& box, const Dims& dims) {
  if (box.offset.empty() && box.size.empty()) return Box{Dims(dims.size(), 0), dims};
  bool inside = box.offset.size() == dims.size() && box.size.size() == dims.size();
  for (size_t i = 0; inside && i < dims.size(); ++i) {
    const int64_t offset = box.offset[i];
    const int64_t size = box.size[i];
    inside = offset >= 0 && size >= 1 && size <= dims[i] && offset <= dims[i] - size;
  }
  if (inside) return box;
  return Fail(
      InvalidArgument(fmt::format("tile [{}:{}] is not inside [{}]", fmt::join(box.offset, ","),
                                  fmt::join(box.size, ","), fmt::join(dims, ","))));
}

std::string ProgramPlace(const Program& program) {
  return fmt::format("program {}/{}", program.name, program.device.value());
}

std::string InstructionPlace(const Program& program, size_t index) {
  MW_CHECK(index < program.instructions.size())
      << "instruction " << index << " of " << program.instructions.size();
  return fmt::format("{}, instruction {} ({})", ProgramPlace(program), index,
                     FormatInstruction(program, program.instructions[index]));
}

}  // namespace meshwright::ir
