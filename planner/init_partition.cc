// The pieces that fill params before the first step.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "ir/builder.h"
#include "ir/program_outputs.h"
#include "planner/local_node.h"
#include "planner/partition.h"
#include "planner/vocabulary_blocks.h"

namespace meshwright::planner {

ir::MemoryKind MemoryKindOf(const ir::Node& param) {
  if (ir::IsOutputState(param.attrs.Str("name")) || param.attrs.Int("kept") != 0) {
    return ir::MemoryKind::kOther;
  }
  return param.attrs.Int("state") != 0 ? ir::MemoryKind::kOptimizer : ir::MemoryKind::kWeights;
}

Result<Partition> MakeInitPartition(const ir::Graph& graph, const StageAssignment& stages,
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
      builder.SetOutput(name, value);
      const ir::MemoryKind kind = MemoryKindOf(node);
      piece.outputs.push_back(result.tensors.Add({stage, TensorRole::kParam, kind, name, type,
                                                  sharding, local, BlockOfParam(node, type)}));
    }
    MW_ASSIGN_OR_RETURN(ir::Graph local_graph, builder.Finish());
    piece.graph = std::make_shared<const ir::Graph>(std::move(local_graph));
    result.pieces.push_back(std::move(piece));
  }
  return result;
}

}  // namespace meshwright::planner
