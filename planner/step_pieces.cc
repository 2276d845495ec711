#include "planner/step_pieces.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "compile/compile.h"
#include "ir/schema.h"
#include "planner/partition.h"
#include "planner/recompute.h"
#include "planner/reduce_in_place.h"
#include "planner/router_sweep.h"
#include "planner/tiers.h"
#include "planner/vocabulary_blocks.h"
#include "planner/vocabulary_schedule.h"

namespace meshwright::planner {
namespace {

constexpr double kTokensPerBalance = 20;
// Where the memory is that slow, CPUs want larger blocks, too.
constexpr int64_t kFewTokens = 1024;

}  // namespace

std::optional<ir::JobRequest> WithHeadBlocks(const ir::JobRequest& job,
                                             const mesh::Topology& topology) {
  if (job.parallel.head_block_tokens > 0 || topology.devices.empty()) return std::nullopt;
  const mesh::DeviceProfile& profile = topology.ProfileOf(0);
  const mesh::KernelRates& rates = profile.Rates(mesh::KernelClass::kHead);
  const mesh::RateCurve& curve = rates.curves[static_cast<size_t>(job.train.compute_dtype)];
  if (curve.empty() || rates.bytes_per_s <= 0) return std::nullopt;
  const auto tokens = static_cast<int64_t>(
      std::ceil(kTokensPerBalance * curve.back().flops_per_s / rates.bytes_per_s));
  if (tokens <= kFewTokens) return std::nullopt;
  std::optional<ir::JobRequest> sized = job;
  sized->parallel.head_block_tokens = tokens;
  return sized;
}

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
                                    const Layout& layout, const Strategies& strategies,
                                    const std::function<Status(Partition&)>& before_compile) {
  MW_ASSIGN_OR_RETURN(Partition partition, MakePartition(step.graph, step.stages, strategies,
                                                         layout, job.parallel.bucket_bytes));
  ReduceInPlace(partition);
  if (before_compile) MW_TRY(before_compile(partition));
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
