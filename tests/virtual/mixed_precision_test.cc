// Mixed precision: bf16 products train as f32 ones do, within the noise of bf16, on every layout.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/philox.h"
#include "client/trainer.h"
#include "models/gpt2.h"
#include "tests/scale.h"
#include "tests/virtual/tiny_models.h"
#include "tests/virtual/virtual_cluster.h"

namespace meshwright::testing {
namespace {

constexpr int kMixedVocabulary = 61;

struct Curve {
  std::vector<double> losses;
  double validation = 0;
  std::map<std::string, LogicalTensor> tensors;
};

Result<Curve> Train(const ir::JobRequest& job, int devices, int steps, ops::FeedSource* feed) {
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<VirtualCluster> cluster,
                      VirtualCluster::Start(job, devices, feed));
  MW_ASSIGN_OR_RETURN(const std::vector<worker::StepReport> reports, cluster->Train(0, steps));
  Curve curve;
  for (const worker::StepReport& report : reports) curve.losses.push_back(report.values.at("loss"));
  MW_ASSIGN_OR_RETURN(curve.validation, cluster->Validate(2));
  MW_ASSIGN_OR_RETURN(curve.tensors, cluster->Gather());
  return curve;
}

Result<Curve> Train(const ir::JobRequest& job, int devices, int steps) {
  SyntheticTokens tokens(kMixedVocabulary);
  return Train(job, devices, steps, &tokens);
}

// Bytes that can be learned: mostly a fixed successor, sometimes any byte.
class LearnableBytes : public ops::TokenSource {
 public:
  Status ReadSample(const std::string&, int64_t sample, std::span<int32_t> row) override {
    int32_t token = static_cast<int32_t>(Word(sample, 0) % 256);
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] = token;
      const uint32_t word = Word(sample, i + 1);
      token = word % 8 == 0 ? static_cast<int32_t>(word >> 8) % 256 : (token * 5 + 3) % 256;
      token &= 0xff;
    }
    return OkStatus();
  }

 private:
  static uint32_t Word(int64_t sample, size_t position) {
    return PhiloxBits(11, 17, static_cast<uint64_t>(sample), position);
  }
};

// The GPT that `./run` trains (examples/gpt-bytes.toml), half its batch, on one device.
Result<ir::JobRequest> RunGptJob() {
  models::Gpt2Config config;
  config.vocabulary = 256;
  config.width = 128;
  config.layers = 6;
  config.heads = 4;
  config.positions = 128;
  ir::OptimizerSpec optimizer;
  optimizer.lr = 3e-3;
  optimizer.warmup_steps = 5;
  ir::TrainSpec train;
  train.global_batch = 8;
  train.sequence = 128;
  train.steps = 1000;
  train.seed = 7;
  return client::JobBuilder("gpt-bytes")
      .Train(train)
      .Optimizer(optimizer)
      .Build(models::MakeGpt2(config));
}

ir::JobRequest MixedJob(const std::string& family, int layers) {
  TinyOptions options;
  options.family = family;
  options.dtype = ir::DType::kF32;
  options.layers = layers;
  options.adam_eps = 1e-3;
  ir::JobRequest job = MakeTinyJob(options);
  job.train.compute_dtype = ir::DType::kBF16;
  return job;
}

void SetDegrees(ir::JobRequest& job, int data, int tensor, int pipeline, int microbatches) {
  job.parallel.data = data;
  job.parallel.tensor = tensor;
  job.parallel.pipeline = pipeline;
  job.parallel.microbatches = microbatches;
}

class MixedPrecision : public ::testing::TestWithParam<std::string> {};

TEST_P(MixedPrecision, LossCurveIsThatOfF32WithinNoise) {
  const int steps = kSanitizedBuild ? 3 : 20;
  ir::JobRequest job = MixedJob(GetParam(), 2);
  SetDegrees(job, 1, 1, 1, 1);
  const auto mixed = Train(job, 1, steps);
  job.train.compute_dtype = ir::DType::kF32;
  const auto full = Train(job, 1, steps);
  ASSERT_TRUE(mixed.has_value()) << mixed.error();
  ASSERT_TRUE(full.has_value()) << full.error();
  // A token between two experts goes to the other one by the order in which a processor sums.
  const double noise = GetParam() == "mixtral" ? 0.02 : 0.01;
  for (int i = 0; i < steps; ++i) {
    const auto step = static_cast<size_t>(i);
    EXPECT_NEAR(mixed->losses[step], full->losses[step], noise) << "step " << i;
  }
  EXPECT_NEAR(mixed->validation, full->validation, noise);
  EXPECT_NE(mixed->losses[0], full->losses[0]) << "nothing was computed in bf16";
}

TEST_P(MixedPrecision, FusingChangesNothingButRounding) {
  ir::JobRequest job = MixedJob(GetParam(), 2);
  SetDegrees(job, 1, 1, 1, 2);
  const auto fused = Train(job, 1, 2);
  job.train.compile = false;
  const auto plain = Train(job, 1, 2);
  ASSERT_TRUE(fused.has_value()) << fused.error();
  ASSERT_TRUE(plain.has_value()) << plain.error();
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(fused->losses[i], plain->losses[i], 5e-3);
}

TEST_P(MixedPrecision, LayoutsAgreeWithinTheRoundingOfBf16) {
  ir::JobRequest job = MixedJob(GetParam(), 4);
  SetDegrees(job, 1, 1, 1, 1);
  const auto one = Train(job, 1, 2);
  ASSERT_TRUE(one.has_value()) << one.error();
  const int layouts[][4] = {{2, 1, 1, 2}, {1, 2, 1, 1}, {1, 1, 2, 4}, {2, 2, 1, 1}, {1, 2, 2, 2}};
  for (const auto& [data, tensor, pipeline, microbatches] : layouts) {
    SetDegrees(job, data, tensor, pipeline, microbatches);
    const auto many = Train(job, data * tensor * pipeline, 2);
    ASSERT_TRUE(many.has_value()) << many.error();
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_NEAR(many->losses[i], one->losses[i], 5e-3)
          << "data=" << data << " tensor=" << tensor << " pipeline=" << pipeline;
    }
  }
}

// Tokens go to experts of other devices and back in bf16.
TEST(MixedPrecisionExperts, SharedByReplicasTrainAsOnOneDevice) {
  ir::JobRequest job = MixedJob("mixtral", 2);
  SetDegrees(job, 1, 1, 1, 1);
  const auto one = Train(job, 1, 3);
  ASSERT_TRUE(one.has_value()) << one.error();
  job.parallel.expert = 2;
  const int layouts[][4] = {{2, 1, 1, 1}, {4, 1, 1, 2}, {2, 2, 1, 1}, {2, 1, 2, 2}};
  for (const auto& [data, tensor, pipeline, microbatches] : layouts) {
    SetDegrees(job, data, tensor, pipeline, microbatches);
    const auto many = Train(job, data * tensor * pipeline, 3);
    ASSERT_TRUE(many.has_value()) << many.error();
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(many->losses[i], one->losses[i], 5e-3)
          << "data=" << data << " tensor=" << tensor << " pipeline=" << pipeline;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, MixedPrecision, ::testing::Values("gpt2", "llama", "mixtral"),
                         [](const auto& param_info) { return param_info.param; });

// A weight that layer 0 makes bf16, once per step, and layer 1 multiplies with.
Result<ir::JobRequest> EarlyCastJob(ir::DType dtype) {
  const auto cast = [](client::Builder& b, ValueId x, const std::string& to) {
    return b.AddOne(ir::Op::kCast, {x}, {{"dtype", to}});
  };
  client::TrainerFunctions functions;
  functions.loss = [cast](client::Builder& b, const client::Batch& batch) {
    b.SetLayer(0);
    ValueId x = b.Embedding(batch.at("tokens"), "embed", kMixedVocabulary, 16);
    const ValueId weight = cast(b, b.Param("early", {16, 16}, {.std_dev = 0.3}), "bf16");
    x = b.AddTo(x, b.Gelu(b.Linear(x, "up", 16)));
    b.SetLayer(1);
    const ValueId y = b.Einsum("bsd,de->bse", cast(b, x, "bf16"), weight);
    x = b.AddTo(x, cast(b, y, "f32"));
    return b.CrossEntropy(b.Linear(x, "head", kMixedVocabulary), batch.at("labels"));
  };
  ir::OptimizerSpec optimizer;
  optimizer.name = "sgd";
  optimizer.lr = 0.5;
  return client::JobBuilder("early-cast")
      .Batch(8, 4)
      .Steps(10)
      .Seed(5)
      .DType(dtype)
      .Optimizer(optimizer)
      .Build(functions);
}

TEST(MixedPrecisionPlan, CastOfAnEarlierStageReachesItsProduct) {
  for (const ir::DType dtype : {ir::DType::kF32, ir::DType::kBF16}) {
    auto job = EarlyCastJob(dtype);
    ASSERT_TRUE(job.has_value()) << job.error();
    SetDegrees(*job, 1, 1, 1, 1);
    const auto one = Train(*job, 1, 3);
    ASSERT_TRUE(one.has_value()) << one.error();
    const int layouts[][4] = {{1, 1, 1, 2}, {2, 1, 1, 1}, {1, 1, 2, 1}, {1, 1, 2, 2}, {2, 1, 2, 2}};
    for (const auto& [data, tensor, pipeline, microbatches] : layouts) {
      SetDegrees(*job, data, tensor, pipeline, microbatches);
      const auto many = Train(*job, data * tensor * pipeline, 3);
      ASSERT_TRUE(many.has_value()) << many.error();
      for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(many->losses[i], one->losses[i], 1e-3);
      std::string where;
      EXPECT_LE(LargestDifference(one->tensors, many->tensors, &where), 1e-2)
          << "data=" << data << " tensor=" << tensor << " pipeline=" << pipeline
          << " microbatches=" << microbatches << ": " << where;
    }
  }
}

TEST(MixedPrecisionCurve, GptOfRunLearnsAsInF32) {
  const int steps = kSanitizedBuild ? 1 : 24;
  auto job = RunGptJob();
  ASSERT_TRUE(job.has_value()) << job.error();
  LearnableBytes bytes;
  const auto full = Train(*job, 1, steps, &bytes);
  job->train.compute_dtype = ir::DType::kBF16;
  const auto mixed = Train(*job, 1, steps, &bytes);
  ASSERT_TRUE(full.has_value()) << full.error();
  ASSERT_TRUE(mixed.has_value()) << mixed.error();
  for (size_t i = 0; i < full->losses.size(); ++i) {
    EXPECT_NEAR(mixed->losses[i] / full->losses[i], 1.0, 0.02) << "step " << i;
  }
  EXPECT_NEAR(mixed->validation / full->validation, 1.0, 0.02);
  // It has learned something, so that the curves had a reason to part.
  EXPECT_TRUE(kSanitizedBuild || full->losses.back() < 0.6 * full->losses.front())
      << full->losses.front() << " -> " << full->losses.back();
}

// Weights and what the optimizer keeps stay f32; a weight is cast once per step, not per
// microbatch.
TEST(MixedPrecisionPlan, WeightsAreF32AndCastOncePerStep) {
  ir::JobRequest job = MixedJob("gpt2", 2);
  SetDegrees(job, 1, 1, 1, 4);
  const auto plan = planner::MakePlan(job, mesh::Topology::Local(1));
  ASSERT_TRUE(plan.has_value()) << plan.error();
  for (const ir::Slot& slot : plan->Of("step")[0].slots) {
    EXPECT_TRUE(!slot.persistent || slot.type.dtype == ir::DType::kF32) << slot.name;
  }
  int weight_casts = 0;
  for (const ir::Executable& executable : plan->Of("step")[0].executables) {
    const ir::Graph& graph = *executable.graph;
    if (graph.name == "s0/z") weight_casts = static_cast<int>(graph.NodesOf(ir::Op::kCast).size());
  }
  // Per layer 4 matrices with their biases, and the table of the head.
  EXPECT_EQ(weight_casts, 2 * 8 + 1);
}

}  // namespace
}  // namespace meshwright::testing
