#include "tests/unit/search/search_testing.h"

#include <fmt/format.h>

#include "base/check.h"

namespace meshwright::search {

using ir::Op;

Result<Staged> StepOf(const ir::Graph& loss, int stage_count, const ir::OptimizerSpec& optimizer) {
  MW_ASSIGN_OR_RETURN(ir::Graph graph, ir::Differentiate(planner::FillLayers(loss)));
  MW_ASSIGN_OR_RETURN(graph, ir::AppendUpdate(graph, optimizer));
  const std::vector<int> layers =
      planner::BalanceLayers(graph, planner::LayerCount(graph), stage_count);
  MW_ASSIGN_OR_RETURN(planner::StageAssignment stages,
                      planner::AssignStages(graph, layers, {stage_count, 1, false}));
  graph = planner::SumGradientsInBackward(std::move(graph), stages);
  if (stage_count > 1) {
    MW_ASSIGN_OR_RETURN(graph, planner::SplitScalarSums(graph, stages));
  }
  MW_ASSIGN_OR_RETURN(stages, planner::AssignStages(graph, layers, {stage_count, 1, false}));
  return Staged{std::move(graph), std::move(stages)};
}

ir::Graph MlpLoss(const MlpOptions& options) {
  const auto f32 = [](ir::Dims dims) { return ir::TensorType{ir::DType::kF32, std::move(dims)}; };
  ir::Builder b("mlp");
  const auto [rows, sequence, width] = std::tuple(options.batch, options.sequence, options.width);
  const ValueId feed = b.AddOne(Op::kFeed, {}, {{"source", std::string("tokens")}},
                                {{ir::DType::kI32, {rows, sequence + 1}}});
  const ValueId ids = b.AddOne(Op::kSlice, {feed},
                               {{"dim", int64_t{1}}, {"start", int64_t{0}}, {"size", sequence}});
  // Not trained: inputs are data.
  const auto noise = [&](const std::string& name, ir::Dims dims) {
    return b.AddOne(Op::kRandomNormal, {}, {{"name", name}, {"mean", 0.0}, {"std", 1.0}},
                    {f32(std::move(dims))});
  };
  const ValueId data = b.AddOne(Op::kEmbedding, {noise("data", {64, width}), ids});
  ValueId x = data;
  for (int layer = 0; layer < options.layers; ++layer) {
    if (layer > 0 && options.activation) x = b.AddOne(Op::kGelu, {x});
    const ValueId w = b.AddOne(Op::kParam, {},
                               {{"name", fmt::format("w{}", layer)},
                                {"init", std::string("normal")},
                                {"std", 0.1},
                                {"decay", int64_t{0}}},
                               {f32({width, width})});
    x = b.AddOne(Op::kEinsum, {x, w}, {{"equation", std::string("bsk,kn->bsn")}});
  }
  const ValueId target = noise("target", {rows, sequence, width});
  b.SetOutput("loss_sum", b.AddOne(Op::kSumSquares, {b.AddOne(Op::kSub, {x, target})}));
  b.SetOutput("count", b.AddOne(Op::kSumSquares, {data}));
  Result<ir::Graph> graph = b.Finish();
  MW_CHECK(graph.has_value()) << graph.error();
  return *std::move(graph);
}

Result<ir::Graph> Gpt2Loss(const models::Gpt2Config& config, int64_t batch, int64_t sequence,
                           ir::DType dtype) {
  ir::TrainSpec train;
  train.global_batch = batch;
  train.sequence = sequence;
  train.steps = 10;
  MW_ASSIGN_OR_RETURN(ir::JobRequest job,
                      client::JobBuilder("gpt2").Parallel({}).Train(train).DType(dtype).Build(
                          models::MakeGpt2(config)));
  return job.main().graph;
}

std::map<std::string, int> CollectivesOf(const planner::Partition& partition) {
  std::map<std::string, int> counts;
  for (const planner::Piece& piece : partition.pieces) {
    for (const ir::Node& node : piece.graph->nodes) {
      const bool collective = node.op == Op::kAllReduce || node.op == Op::kAllGather ||
                              node.op == Op::kReduceScatter || node.op == Op::kAllToAll;
      bool scalar = true;
      for (ValueId output : node.outputs) {
        scalar = scalar && piece.graph->type(output).rank() == 0;
      }
      if (collective && !scalar) ++counts[std::string(ir::OpName(node.op))];
    }
  }
  return counts;
}

ir::JobRequest SmallGpt2Job(int layers) {
  models::Gpt2Config config;
  config.vocabulary = 256;
  config.width = 64;
  config.heads = 4;
  config.layers = layers;
  ir::JobRequest job;
  job.name = "small";
  job.train.global_batch = 8;
  job.train.sequence = 32;
  job.SetLoss(*Gpt2Loss(config, 8, 32));
  return job;
}

ir::JobRequest OpenJob() {
  ir::JobRequest job = SmallGpt2Job(4);
  job.parallel = ir::OpenParallel();
  return job;
}

}  // namespace meshwright::search
