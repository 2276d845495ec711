#include "planner/step_pieces.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "compile/compile.h"
#include "ir/schema.h"
#include "planner/context_attention.h"
#include "planner/expert_groups.h"
#include "planner/partition.h"
#include "planner/recompute.h"
#include "planner/reduce_in_place.h"
#include "planner/router_sweep.h"
#include "planner/tiers.h"
#include "planner/token_order.h"
#include "planner/vocabulary_blocks.h"
#include "planner/vocabulary_schedule.h"

namespace meshwright::planner {
namespace {

// Of the layers of the model, which are the first `layers` of the graph's.
std::vector<int> PartOfLayers(const ir::Graph& graph, const Layout& layout, int layers) {
  if (layout.part_layers.empty()) return BalanceLayers(graph, layers, layout.shape().parts());
  std::vector<int> parts;
  for (const int count : layout.part_layers) {
    const int part = parts.empty() ? 0 : parts.back() + 1;
    parts.insert(parts.end(), static_cast<size_t>(count), part);
  }
  return parts;
}

}  // namespace

Result<JobOnAxes> PlaceOnAxes(const ir::JobRequest& job, const Layout& layout) {
  JobOnAxes placed{job, layout, {}};
  if (layout.expert() > 1) {
    MW_ASSIGN_OR_RETURN(placed.job, WithExpertGroups(placed.job, layout));
  }
  if (layout.context() == 1) return placed;
  MW_ASSIGN_OR_RETURN(placed.layout, ResolveContextAttention(placed.job, layout, placed.notes));
  MW_ASSIGN_OR_RETURN(placed.job, WithTokenOrder(placed.job, placed.layout, placed.notes));
  if (placed.layout.context_attention == ContextAttention::kUlysses) {
    MW_ASSIGN_OR_RETURN(placed.job, WithSharedHeads(placed.job, placed.layout));
  }
  return placed;
}

Result<StagedStep> StageStep(const ir::JobRequest& job, ir::Graph step_graph,
                             const Layout& layout) {
  const int layers = LayerCount(step_graph);
  MW_ASSIGN_OR_RETURN(ir::Graph graph, SplitVocabulary(std::move(step_graph), layout, layers));
  MW_ASSIGN_OR_RETURN(graph, FuseWholeHead(job, layout, std::move(graph)));
  const bool recomputes = std::any_of(layout.recompute.begin(), layout.recompute.end(),
                                      [](Recompute mode) { return mode >= Recompute::kSelective; });
  if (recomputes) {
    MW_ASSIGN_OR_RETURN(graph, RecomputeActivations(graph, layout.recompute));
  }
  MW_ASSIGN_OR_RETURN(graph, WithRouterSweep(std::move(graph), layout));
  const PipelineShape shape = StepShape(layout);
  std::vector<int> part_of_layer = PartOfLayers(graph, layout, layers);
  if (SharesVocabulary(layout)) {
    part_of_layer = VocabularyLayers{layers, shape.stages}.Parts(part_of_layer);
  }
  MW_ASSIGN_OR_RETURN(StageAssignment stages, AssignStages(graph, part_of_layer, shape));
  graph = SumGradientsInBackward(std::move(graph), stages);
  if (shape.stages > 1) {
    MW_ASSIGN_OR_RETURN(graph, SplitScalarSums(graph, stages));
  }
  MW_ASSIGN_OR_RETURN(stages, AssignStages(graph, part_of_layer, shape));
  return StagedStep{std::move(graph), std::move(stages)};
}

Result<Partition> MakeStepPartition(const ir::JobRequest& job, const StagedStep& step,
                                    const Layout& layout, const Strategies& strategies) {
  MW_ASSIGN_OR_RETURN(Partition partition, MakePartition(step.graph, step.stages, strategies,
                                                         layout, job.parallel.bucket_bytes));
  ReduceInPlace(partition);
  MW_TRY(CompilePieces(job, partition));
  MW_TRY(PlaceState(job.parallel, partition));
  return partition;
}

Result<ir::Graph> FuseWholeHead(const ir::JobRequest& job, const Layout& layout, ir::Graph graph) {
  const Degrees last = layout.DegreesOf(layout.shape().StageOf(layout.shape().parts() - 1));
  if (!job.train.compile || last.tensor() > 1) return graph;
  return compile::FuseHead(graph, last.data() * last.context() * layout.microbatches,
                           std::max<int64_t>(1, job.parallel.head_block_tokens));
}

Status CompilePieces(const ir::JobRequest& job, Partition& partition) {
  constexpr int64_t kPiecesPerThread = 8;
  if (!job.train.compile) return OkStatus();
  std::vector<Result<ir::Graph>> compiled(partition.pieces.size());
  ParallelItems(static_cast<int64_t>(compiled.size()), kPiecesPerThread, [&](int64_t i) {
    const auto at = static_cast<size_t>(i);
    compiled[at] = compile::CompileExecutable(*partition.pieces[at].graph);
  });
  for (size_t i = 0; i < compiled.size(); ++i) {
    MW_TRY(compiled[i]);
    partition.pieces[i].graph = std::make_shared<const ir::Graph>(*std::move(compiled[i]));
  }
  return OkStatus();
}

}  // namespace meshwright::planner
