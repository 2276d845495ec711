// What an optimizer remembers, in fewer bytes: moments in bf16, and Adafactor's rows and columns.
// Every layout trains what one device trains, a checkpoint goes on in another, and memory is what
// the formulas say.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/scale.h"
#include "tests/virtual/run_job.h"
#include "tests/virtual/saved_states.h"
#include "tests/virtual/tiny_models.h"
#include "tests/virtual/virtual_cluster.h"

namespace meshwright::testing {
namespace {

constexpr int kStateVocabulary = 64;

ir::JobRequest StateJob(const char* optimizer, ir::DType dtype, ir::DType moments) {
  TinyOptions options;
  // GPT-2's keys have biases whose gradient is rounding alone, and Adafactor divides by its size.
  options.family = std::string(optimizer) == "adafactor" ? "llama" : "gpt2";
  options.layers = 2;
  options.batch = 8;
  options.vocabulary = kStateVocabulary;
  options.dtype = dtype;
  ir::JobRequest job = MakeTinyJob(options);
  job.optimizer.name = optimizer;
  job.optimizer.moments_dtype = moments;
  if (job.optimizer.name == "adafactor") {
    job.optimizer.schedule = "relative";
    job.optimizer.lr = 1;
  }
  return job;
}

int64_t OptimizerBytes(const planner::Plan& plan) {
  return plan.memory.front().bytes.at(ir::MemoryKind::kOptimizer);
}

// Split over replicas each element is renewed as it is whole: the same bits. Only the norm may
// differ, whose squares are summed in another order, so it does not bound the gradients here.
TEST(MomentsInBf16, ReplicasThatSplitThemTrainTheSameBits) {
  for (const char* optimizer : {"adamw", "sgd", "lion"}) {
    ir::JobRequest job = StateJob(optimizer, ir::DType::kF32, ir::DType::kBF16);
    job.optimizer.momentum = 0.9;
    job.optimizer.max_norm = 0;
    const LayoutCase c{2, 1, 1, 1};
    const auto whole = RunJob(WithLayout(job, c), 2, kStateVocabulary);
    ASSERT_TRUE(whole.has_value()) << whole.error();
    for (const int zero : {1, 2, 3}) {
      ir::JobRequest split = WithLayout(job, c);
      split.parallel.zero = zero;
      const auto actual = RunJob(split, 2, kStateVocabulary);
      ASSERT_TRUE(actual.has_value()) << actual.error();
      const std::string layout = fmt::format("{} zero={}", optimizer, zero);
      ExpectEqual(*whole, *actual, 1e-6, layout);
      EXPECT_EQ(actual->losses, whole->losses) << layout;
      std::string where;
      EXPECT_EQ(LargestDifference(whole->tensors, actual->tensors, &where), 0)
          << layout << " " << where;
      EXPECT_LT(OptimizerBytes(actual->plan), OptimizerBytes(whole->plan));
    }
  }
}

TEST(MomentsInBf16, AreHalfOfThoseInF32AndNearThem) {
  const ir::JobRequest wide = StateJob("adamw", ir::DType::kF32, ir::DType::kF32);
  const ir::JobRequest narrow = StateJob("adamw", ir::DType::kF32, ir::DType::kBF16);
  const auto expected = RunJob(WithLayout(wide, {}), 1, kStateVocabulary);
  const auto actual = RunJob(WithLayout(narrow, {}), 1, kStateVocabulary);
  ASSERT_TRUE(expected.has_value()) << expected.error();
  ASSERT_TRUE(actual.has_value()) << actual.error();
  EXPECT_EQ(2 * OptimizerBytes(actual->plan), OptimizerBytes(expected->plan));
  EXPECT_NEAR(actual->losses.back(), expected->losses.back(), 1e-3);
  for (const char* memory : {"host", "disk"}) {
    ir::JobRequest far = WithLayout(narrow, {});
    far.parallel.optimizer_memory = memory;
    const auto elsewhere = RunJob(far, 1, kStateVocabulary);
    ASSERT_TRUE(elsewhere.has_value()) << memory << ": " << elsewhere.error();
    ExpectEqual(*actual, *elsewhere, 0, memory);
  }
}

TEST(MomentsInBf16, ACheckpointGoesOnInAnotherLayout) {
  const ir::JobRequest job = StateJob("adamw", ir::DType::kF32, ir::DType::kBF16);
  SavedStates states;
  SyntheticTokens tokens(kStateVocabulary);
  const auto one = VirtualCluster::Start(WithLayout(job, {}), 1, &tokens);
  ASSERT_TRUE(one.has_value()) << one.error();
  ASSERT_TRUE((*one)->Train(0, 2).has_value());
  ASSERT_TRUE(states.Save(**one, 2, "one").ok());
  const auto expected = TrainOn(**one, 2, 2);
  ASSERT_TRUE(expected.has_value()) << expected.error();
  const auto again = VirtualCluster::Start(WithLayout(job, {}), 1, &tokens);
  ASSERT_TRUE(again.has_value()) << again.error();
  ASSERT_TRUE(states.Load(**again, 2, "one").ok());
  const auto same = TrainOn(**again, 2, 2);
  ASSERT_TRUE(same.has_value()) << same.error();
  ExpectSameTraining(*expected, *same, true, "one device");
}

TEST(Adafactor, EveryLayoutEqualsOneDevice) {
  const ir::JobRequest job = StateJob("adafactor", ir::DType::kF64, ir::DType::kF32);
  const auto expected = RunJob(WithLayout(job, {}), 1, kStateVocabulary);
  ASSERT_TRUE(expected.has_value()) << expected.error();
  EXPECT_TRUE(expected->tensors.contains("opt.r/model.layers.0.self_attn.q_proj.weight"));
  std::vector<LayoutCase> layouts = {{2, 1, 1, 2}, {1, 2, 1, 1}, {1, 1, 2, 4}, {2, 2, 2, 4}};
  if (kSanitizedBuild) layouts = {{2, 2, 2, 4}};
  for (const LayoutCase& c : layouts) {
    for (const int zero : {0, 1}) {
      if (zero > 0 && c.data == 1) continue;
      ir::JobRequest split = WithLayout(job, c);
      split.parallel.zero = zero;
      const auto actual = RunJob(split, c.devices(), kStateVocabulary);
      ASSERT_TRUE(actual.has_value()) << c.ToString() << ": " << actual.error();
      ExpectEqual(*expected, *actual, 1e-10, fmt::format("{} zero={}", c.ToString(), zero));
    }
  }
}

TEST(Adafactor, RemembersRowsAndColumns) {
  const auto adamw = RunJob(WithLayout(StateJob("adamw", ir::DType::kF32, ir::DType::kF32), {}), 1,
                            kStateVocabulary);
  const auto factored = RunJob(
      WithLayout(StateJob("adafactor", ir::DType::kF32, ir::DType::kF32), {}), 1, kStateVocabulary);
  ASSERT_TRUE(adamw.has_value()) << adamw.error();
  ASSERT_TRUE(factored.has_value()) << factored.error();
  EXPECT_LT(OptimizerBytes(factored->plan), OptimizerBytes(adamw->plan) / 8);
}

TEST(Adafactor, WhatSplitsParamsIsRefused) {
  ir::JobRequest job =
      WithLayout(StateJob("adafactor", ir::DType::kF32, ir::DType::kF32), {2, 1, 1, 1});
  job.parallel.zero = 2;
  const Status status = ir::ValidateJob(job);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("parallel.zero"), std::string::npos) << status;
}

}  // namespace
}  // namespace meshwright::testing
