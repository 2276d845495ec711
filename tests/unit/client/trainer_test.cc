#include "client/trainer.h"

#include <gtest/gtest.h>

#include "ir/autodiff.h"
#include "ir/verify.h"

namespace meshwright::client {
namespace {

TrainerFunctions Mlp() {
  TrainerFunctions functions;
  functions.predict = [](Builder& b, const Batch& batch) {
    b.SetLayer(0);
    const ValueId x = b.Embedding(batch.at("tokens"), "embed", 32, 8);
    return b.Linear(b.Gelu(b.Linear(b.LayerNorm(x, "norm"), "up", 16)), "head", 32);
  };
  functions.loss = [predict = functions.predict](Builder& b, const Batch& batch) {
    return b.CrossEntropy(predict(b, batch), batch.at("labels"));
  };
  return functions;
}

TEST(Trainer, DefaultCollateShiftsLabelsByOneToken) {
  const auto graph = BuildLossGraph("mlp", {.batch = 4, .sequence = 6}, Mlp());
  ASSERT_TRUE(graph) << graph.error();
  const auto slices = graph->NodesOf(ir::Op::kSlice);
  ASSERT_EQ(slices.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const ir::Node& slice = graph->node(slices[i]);
    EXPECT_EQ(slice.attrs.Int("start"), static_cast<int64_t>(i));
    EXPECT_EQ(graph->type(slice.outputs[0]).ToString(), "i32[4,6]");
  }
}

TEST(Trainer, LossGraphOfUserFunctionsDifferentiates) {
  const auto graph = BuildLossGraph("mlp", {.batch = 4, .sequence = 6}, Mlp());
  ASSERT_TRUE(graph) << graph.error();
  EXPECT_EQ(CountParams(*graph), 32 * 8 + 2 * 8 + 8 * 16 + 16 + 16 * 32 + 32);
  const auto step = ir::Differentiate(*graph);
  ASSERT_TRUE(step) << step.error();
  EXPECT_TRUE(step->Output("grad/up.weight").valid());
}

TEST(Trainer, OwnCollateReplacesTheDefault) {
  TrainerFunctions functions = Mlp();
  functions.collate = [](Builder& b, ValueId window) -> Batch {
    return {{"tokens", b.Slice(window, 1, 0, 3)}, {"labels", b.Slice(window, 1, 2, 3)}};
  };
  const auto program = PredictProgram({.batch = 4, .sequence = 6}, functions);
  ASSERT_TRUE(program) << program.error();
  const ir::Graph& graph = program->graph;
  EXPECT_EQ(graph.type(graph.Output("logits")).ToString(), "f32[4,3,32]");
  EXPECT_EQ(program->OriginOf("window"), ir::InputFrom::kClient);
}

TEST(Trainer, MissingFunctionsAndBadShapesAreNamed) {
  EXPECT_NE(
      BuildLossGraph("g", {.batch = 1, .sequence = 1}, {}).error().message().find("loss is empty"),
      std::string::npos);
  EXPECT_NE(
      PredictProgram({.batch = 1, .sequence = 1}, {}).error().message().find("predict is empty"),
      std::string::npos);
  EXPECT_EQ(BuildLossGraph("g", {.batch = 0, .sequence = 1}, Mlp()).error().code(),
            StatusCode::kInvalidArgument);
}

TEST(JobBuilder, LeavesTheLayoutToTheSearch) {
  const auto job = JobBuilder("mlp").Batch(4, 6).Build(Mlp());
  ASSERT_TRUE(job) << job.error();
  EXPECT_EQ(job->parallel, ir::OpenParallel());
}

TEST(JobBuilder, FindsOpsWithoutGradientBeforeAClusterDoes) {
  TrainerFunctions functions = Mlp();
  functions.loss = [predict = functions.predict](Builder& b, const Batch& batch) {
    const ValueId logits = predict(b, batch);
    Loss loss = b.CrossEntropy(logits, batch.at("labels"));
    const ValueId picked = b.AddOne(ir::Op::kPick, {logits, batch.at("labels")});
    const ValueId spread = b.AddOne(ir::Op::kSumSquares, {picked});
    loss.loss_sum = b.AddOne(ir::Op::kAdd, {loss.loss_sum, spread});
    return loss;
  };
  const auto job = JobBuilder("mlp").Batch(4, 6).Build(functions);
  ASSERT_FALSE(job);
  EXPECT_NE(job.error().message().find("pick: has no gradient"), std::string::npos) << job.error();
}

TEST(Layers, FirstErrorSticksAndLaterCallsAreHarmless) {
  Builder b("g");
  const ValueId x = b.Param("w", {2, 3});
  const ValueId bad = b.Einsum("ab,cd->ad", x, x);
  EXPECT_FALSE(bad.valid());
  const ValueId y = b.Dropout(b.LayerNorm(b.Linear(bad, "l", 4), "n"), 0.5, "d");
  EXPECT_TRUE(b.dims(y).empty());
  EXPECT_FALSE(b.CrossEntropy(y, x).loss_sum.valid());
  EXPECT_NE(b.Finish().error().message().find("einsum"), std::string::npos);
}

TEST(Layers, DuplicateNamesAreRefused) {
  Builder b("g");
  const ValueId x = b.Param("w", {2, 3});
  b.Linear(x, "l", 4);
  b.Linear(x, "l", 4);
  EXPECT_NE(b.Finish().error().message().find("'l.weight' is used twice"), std::string::npos);
}

TEST(Layers, ScalarOperandOfLinearIsAnErrorNotACrash) {
  Builder b("g");
  b.Linear(b.ReduceSum(b.Param("w", {3}), {0}), "l", 4);
  EXPECT_FALSE(b.Finish());
}

TEST(JobBuilder, MakesARequestThatValidates) {
  ir::DataSpec data;
  data.blob.sha256 = "ab";
  const auto job = JobBuilder("mlp").Batch(4, 6).Steps(7).Seed(3).Data(data).Build(Mlp());
  ASSERT_TRUE(job) << job.error();
  EXPECT_EQ(job->train.steps, 7);
  EXPECT_EQ(job->train.seed, 3u);
  EXPECT_EQ(job->main().graph.name, "mlp");
  EXPECT_TRUE(ir::ValidateJob(*job).ok());
}

TEST(JobBuilder, Bf16IsMixedPrecisionOverF32Params) {
  for (const ir::DType dtype : {ir::DType::kBF16, ir::DType::kF32, ir::DType::kF64}) {
    const bool mixed = dtype == ir::DType::kBF16;
    const auto job = JobBuilder("mlp").DType(dtype).Batch(4, 6).Build(Mlp());
    ASSERT_TRUE(job) << job.error();
    EXPECT_EQ(job->train.compute_dtype, mixed ? ir::DType::kBF16 : ir::DType::kF32);
    ASSERT_FALSE(job->main().graph.NodesOf(ir::Op::kParam).empty());
    for (const NodeId id : job->main().graph.NodesOf(ir::Op::kParam)) {
      const ir::Node& param = job->main().graph.node(id);
      EXPECT_EQ(job->main().graph.type(param.outputs[0]).dtype, mixed ? ir::DType::kF32 : dtype)
          << param.attrs.Str("name");
    }
  }
}

TEST(JobBuilder, ReportsWhatTheRequestGetsWrong) {
  const auto job = JobBuilder("mlp").Batch(4, 6).Optimizer({.name = "adagrad"}).Build(Mlp());
  ASSERT_FALSE(job);
  EXPECT_NE(job.error().message().find("adagrad"), std::string::npos);
}

}  // namespace
}  // namespace meshwright::client
