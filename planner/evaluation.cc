#include "planner/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "base/check.h"
#include "ir/builder.h"
#include "ir/loss_terms.h"
#include "ir/rewrite.h"
#include "ir/schema.h"
#include "mesh/sharding.h"
#include "planner/local_node.h"
#include "planner/partition.h"
#include "planner/vocabulary_blocks.h"

namespace meshwright::planner {
namespace {

using ir::Op;

// Of `validated`, inputs of the job's data become those of the validation.
Result<ir::Graph> WithoutNoise(const ir::Graph& graph, const ir::JobProgram* validated) {
  bool without_terms = false;
  const auto emit = [&](ir::Builder& builder, const ir::Node& node,
                        const std::vector<ValueId>& inputs,
                        const std::vector<ir::TensorType>& types) {
    if (node.op == Op::kDropout) return std::vector<ValueId>{inputs[0]};
    if (node.op == Op::kNoise && node.attrs.Int("training") != 0) {
      return builder.Add(Op::kScale, inputs, {{"factor", 0.0}});
    }
    if (node.op == Op::kAdd && node.attrs.Int(ir::kTrainingAttr) != 0) {
      without_terms = true;
      return std::vector<ValueId>{inputs[0]};
    }
    ir::Attrs attrs = node.attrs;
    if (attrs.Has("dropout")) attrs.Set("dropout", 0.0);  // of attention's probabilities
    const bool validates = node.op == Op::kFeed && validated != nullptr &&
                           validated->OriginOf(attrs.Str("source")) == ir::InputFrom::kData;
    if (validates) attrs.Set("source", ir::ValidationFeed(attrs.Str("source")));
    return builder.Add(node.op, inputs, attrs, types);
  };
  MW_ASSIGN_OR_RETURN(ir::Graph forward, ir::RewriteGraph(graph, emit));
  return without_terms ? ir::DropDeadNodes(forward) : forward;
}

std::vector<std::string> NamesOf(const ir::Graph& graph) {
  std::vector<std::string> names;
  for (const ir::NamedValue& output : graph.outputs) names.push_back(output.name);
  return names;
}

}  // namespace

Result<ir::Graph> MakeForwardGraph(const ir::Graph& graph, const ir::JobProgram* validated) {
  MW_ASSIGN_OR_RETURN(ir::Graph forward, WithoutNoise(graph, validated));
  return ReportInUpdate(std::move(forward), NamesOf(graph));
}

Result<ir::Graph> MakeEvaluationGraph(const ir::Graph& loss, const ir::JobProgram& trained) {
  return MakeForwardGraph(loss, &trained);
}

// A sum of one operand, or a reshape to the same shape, carries a value into the update phase.
Result<ir::Graph> ReportInUpdate(ir::Graph graph, const std::vector<std::string>& outputs) {
  ir::Builder builder(std::move(graph));
  builder.SetLayer(-1);
  builder.SetPhase(ir::Phase::kUpdate);
  for (const std::string& name : outputs) {
    const ValueId value = builder.graph().Output(name);
    const ir::TensorType type = builder.type(value);
    const ValueId carried = type.rank() == 0 && ir::IsFloating(type.dtype)
                                ? builder.AddOne(Op::kSum, {value})
                                : builder.AddOne(Op::kReshape, {value}, {}, {type});
    builder.SetOutput(name, carried);
  }
  return builder.Finish();
}

bool GivesTensors(const ir::Graph& graph) {
  return std::any_of(graph.outputs.begin(), graph.outputs.end(), [&](const ir::NamedValue& output) {
    return graph.type(output.value).rank() > 0;
  });
}

int64_t RowsOf(const ir::Graph& graph) {
  for (const NodeId id : graph.NodesOf(Op::kFeed)) {
    const ir::Node& feed = graph.node(id);
    if (ir::IsBatchFeed(feed)) return graph.type(feed.outputs[0]).dims[0];
  }
  return 1;
}

std::vector<std::string> OwnOutputs(const ir::Graph& loss) {
  std::vector<std::string> own;
  for (const std::string& name : NamesOf(loss)) {
    if (name != "loss_sum" && name != "count") own.push_back(name);
  }
  return own;
}

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

namespace {

// The pieces that fill params before the first step.
Result<Partition> FillParams(const ir::Graph& graph, const StageAssignment& stages,
                             const Strategies& strategies, const Layout& layout) {
  Partition result;
  std::vector<std::vector<NodeId>> params(static_cast<size_t>(stages.stage_count()));
  for (const NodeId id : graph.NodesOf(ir::Op::kParam)) {
    const auto holders = stages.param_stages.find(graph.node(id).attrs.Str("name"));
    if (holders == stages.param_stages.end()) continue;
    for (const int stage : holders->second) params[static_cast<size_t>(stage)].push_back(id);
  }
  for (int stage = 0; stage < stages.stage_count(); ++stage) {
    Piece piece;
    piece.key = {stage, ir::Phase::kForward, 0};
    const mesh::Mesh mesh = PlanningMesh(layout, stage);
    ir::Builder builder(fmt::format("s{}/init", stage));
    builder.SetPhase(ir::Phase::kUpdate);
    for (const NodeId id : params[static_cast<size_t>(stage)]) {
      const ir::Node& node = graph.node(id);
      const std::string name = node.attrs.Str("name");
      const ir::TensorType& type = graph.type(node.outputs[0]);
      const mesh::Sharding sharding = OnMesh(strategies.params.at(name), mesh);
      const ir::TensorType local{type.dtype, mesh::LocalDims(type.dims, sharding, mesh)};
      const ValueId value = EmitInitialValue(builder, node, type, sharding, local);
      const std::optional<StateBlock> block = BlockOfParam(node, type);
      const std::string& state = block ? block->name : name;
      builder.SetOutput(state, value);
      piece.outputs.push_back(result.tensors.Add(
          {stage, TensorRole::kParam, MemoryKindOf(node), state, type, sharding, local, block}));
    }
    MW_ASSIGN_OR_RETURN(ir::Graph local_graph, builder.Finish());
    piece.graph = std::make_shared<const ir::Graph>(std::move(local_graph));
    result.pieces.push_back(std::move(piece));
  }
  return result;
}

}  // namespace

Result<Partition> MakeInitPartition(const ir::Graph& graph, const StageAssignment& stages,
                                    const Strategies& strategies, const Layout& layout,
                                    const OutputStates& states) {
  if (states.empty()) return FillParams(graph, stages, strategies, layout);
  ir::Builder builder(graph);
  StageAssignment with_stages = stages;
  Strategies with_strategies = strategies;
  for (const OutputState& state : states) {
    AddParam(builder, state);
    with_stages.param_stages[state.name()] = {0};
    with_strategies.params[state.name()] = state.sharding;
  }
  MW_ASSIGN_OR_RETURN(const ir::Graph all, builder.Finish());
  return FillParams(all, with_stages, with_strategies, layout);
}

}  // namespace meshwright::planner
