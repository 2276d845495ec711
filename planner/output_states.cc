#include "planner/output_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "base/check.h"
#include "ir/builder.h"
#include "ir/rewrite.h"
#include "mesh/sharding.h"

namespace meshwright::planner {
namespace {

ValueId AddParam(ir::Builder& builder, const OutputState& state) {
  return builder.AddOne(ir::Op::kParam, {}, {{"name", state.name()}, {"init", "zeros"}},
                        {state.type});
}

const OutputState& Find(const OutputStates& states, const ir::ProgramOutput& output) {
  const auto it = std::find_if(states.begin(), states.end(),
                               [&](const OutputState& state) { return state.output == output; });
  MW_CHECK(it != states.end()) << output.program << " " << output.name;
  return *it;
}

}  // namespace

void MakeOutputStates(const ir::JobRequest& job, const std::string& program, const ir::Graph& graph,
                      const Strategies& strategies, OutputStates& states) {
  std::set<ir::ProgramOutput> read;
  for (const ir::JobProgram& reader : job.programs) {
    for (const auto& [input, output] : reader.reads) {
      if (output.program == program) read.insert(output);
    }
  }
  for (const ir::ProgramOutput& output : read) {
    const ValueId value = graph.Output(output.name);
    states.push_back({output, graph.type(value), WithoutPartials(strategies.values[value])});
  }
}

Result<ir::Graph> ReadOutputStates(ir::Graph graph, const ir::JobProgram& program,
                                   const OutputStates& states) {
  if (program.reads.empty()) return graph;
  const auto emit = [&](ir::Builder& builder, const ir::Node& node,
                        const std::vector<ValueId>& inputs,
                        const std::vector<ir::TensorType>& types) {
    const auto read = node.op == ir::Op::kFeed ? program.reads.find(node.attrs.Str("source"))
                                               : program.reads.end();
    if (read == program.reads.end()) return builder.Add(node.op, inputs, node.attrs, types);
    const OutputState& state = Find(states, read->second);
    const ValueId param = AddParam(builder, state);
    if (state.type == types[0]) return std::vector<ValueId>{param};
    // Mixed precision may compute it in another type than the job says.
    return builder.Add(ir::Op::kCast, {param},
                       {{"dtype", std::string(ir::DTypeName(types[0].dtype))}});
  };
  return ir::RewriteGraph(graph, emit);
}

Status CheckOneStage(const Layout& layout) {
  if (layout.pipeline == 1) return OkStatus();
  return InvalidArgument(
      fmt::format("pipeline={}: a program reads an output of another, and both must be on the same "
                  "devices; use "
                  "pipeline=1",
                  layout.pipeline));
}

bool ReadsOutputStates(const ir::Graph& graph) {
  const std::vector<NodeId> params = graph.NodesOf(ir::Op::kParam);
  return std::any_of(params.begin(), params.end(), [&](NodeId id) {
    return ir::IsOutputState(graph.node(id).attrs.Str("name"));
  });
}

void AddOutputStates(const ir::Graph& graph, const OutputStates& states,
                     std::map<std::string, mesh::Sharding>& known) {
  for (const NodeId id : graph.NodesOf(ir::Op::kParam)) {
    const std::string name = graph.node(id).attrs.Str("name");
    for (const OutputState& state : states) {
      if (state.name() == name) known[name] = state.sharding;
    }
  }
}

Status WriteOutputStates(const std::string& program, const OutputStates& states,
                         Partition& partition) {
  for (const OutputState& state : states) {
    if (state.output.program != program) continue;
    const auto given =
        std::find_if(partition.outputs.begin(), partition.outputs.end(),
                     [&](const Report& report) { return report.name == state.output.name; });
    MW_CHECK(given != partition.outputs.end()) << state.name();
    StageTensor kept = partition.tensors[given->tensor];
    kept.role = TensorRole::kParam;
    kept.kind = ir::MemoryKind::kOther;
    kept.name = state.name();
    const auto piece =
        std::find_if(partition.pieces.begin(), partition.pieces.end(), [&](const Piece& p) {
          return std::find(p.outputs.begin(), p.outputs.end(), given->tensor) != p.outputs.end();
        });
    MW_CHECK(piece != partition.pieces.end()) << state.name();
    const auto at =
        static_cast<size_t>(std::find(piece->outputs.begin(), piece->outputs.end(), given->tensor) -
                            piece->outputs.begin());
    ir::Builder builder(*piece->graph);
    builder.SetOutput(kept.name, piece->graph->outputs[at].value);
    MW_ASSIGN_OR_RETURN(ir::Graph graph, builder.Finish());
    piece->graph = std::make_shared<const ir::Graph>(std::move(graph));
    piece->outputs.push_back(partition.tensors.Add(std::move(kept)));
  }
  return OkStatus();
}

Result<Partition> MakeInitPartition(const ir::Graph& graph, const StageAssignment& stages,
                                    const Strategies& strategies, const Layout& layout,
                                    const OutputStates& states) {
  if (states.empty()) return MakeInitPartition(graph, stages, strategies, layout);
  ir::Builder builder(graph);
  StageAssignment with_stages = stages;
  Strategies with_strategies = strategies;
  for (const OutputState& state : states) {
    AddParam(builder, state);
    with_stages.param_stages[state.name()] = {0};
    with_strategies.params[state.name()] = state.sharding;
  }
  MW_ASSIGN_OR_RETURN(const ir::Graph all, builder.Finish());
  return MakeInitPartition(all, with_stages, with_strategies, layout);
}

}  // namespace meshwright::planner
