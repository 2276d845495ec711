#include "planner/describe_stages.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "ir/schema.h"
#include "planner/lower.h"
#include "planner/padding.h"
#include "planner/vocabulary_blocks.h"
#include "planner/vocabulary_schedule.h"

namespace meshwright::planner {
namespace {

// First and last of a part.
std::pair<int, int> LayersOf(const StageAssignment& stages, const Layout& layout, int part) {
  const std::vector<int>& part_of_layer = stages.part_of_layer;
  if (SharesVocabulary(layout)) part += layout.shape().stages * kLayersChunk;
  const auto range = std::equal_range(part_of_layer.begin(),
                                      part_of_layer.begin() + ModelLayers(stages, layout), part);
  const auto first = static_cast<int>(range.first - part_of_layer.begin());
  return {first, first + static_cast<int>(range.second - range.first) - 1};
}

void DescribeParams(const StagedStep& staged, const Strategies& strategies, Plan& plan) {
  for (NodeId id : staged.graph.NodesOf(ir::Op::kParam)) {
    const ir::Node& node = staged.graph.node(id);
    const std::string name = node.attrs.Str("name");
    if (node.attrs.Int("state") != 0) continue;
    const ir::TensorType& type = staged.graph.type(node.outputs[0]);
    const std::vector<int>& stages = staged.stages.param_stages.at(name);
    const std::optional<StateBlock> block = BlockOfParam(node, type);
    if (block && block->first_row > 0) {
      std::vector<int>& all = plan.params.back().stages;
      all.insert(all.end(), stages.begin(), stages.end());
      continue;
    }
    plan.params.push_back({block ? block->name : name,
                           block ? ir::TensorType{type.dtype, block->whole_dims} : type,
                           strategies.params.at(name), stages});
  }
}

}  // namespace

int ModelLayers(const StageAssignment& stages, const Layout& layout) {
  const auto all = static_cast<int>(stages.part_of_layer.size());
  if (!SharesVocabulary(layout)) return all;
  return all - VocabularyLayers{0, static_cast<int>(layout.pipeline)}.count();
}

void DescribeStages(const StagedStep& staged, const Strategies& strategies, Plan& plan) {
  const Layout& layout = plan.layout;
  for (int stage = 0; stage < layout.pipeline; ++stage) {
    StageInfo info;
    info.mesh = StageMesh(layout, stage);
    for (int chunk = 0; chunk < layout.chunks; ++chunk) {
      info.layers.push_back(LayersOf(staged.stages, layout, layout.shape().PartOf(stage, chunk)));
    }
    plan.stages.push_back(std::move(info));
  }
  for (size_t i = 0; i < staged.graph.nodes.size(); ++i) {
    const ir::Node& node = staged.graph.nodes[i];
    if (node.op == ir::Op::kParam) continue;
    for (int stage : staged.stages.node_stages[i]) {
      plan.stages[static_cast<size_t>(stage)].flops_per_step +=
          ir::CostOf(staged.graph, node).flops;
    }
  }
  DescribeParams(staged, strategies, plan);
}

}  // namespace meshwright::planner
