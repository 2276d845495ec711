// A job made small keeps what its layout divides.
#include "rehearsal/small_job.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/unit/rehearsal/planned.h"

namespace meshwright::rehearsal {
namespace {

TEST(SmallLike, KeepsTheCommonDivisorAndIsTheSmallest) {
  EXPECT_EQ(SmallLike(50257, 8, 31), 31);  // odd stays odd
  EXPECT_EQ(SmallLike(50304, 8, 31), 32);  // what 8 divides it goes on dividing
  EXPECT_EQ(SmallLike(12288, 64, 8), 64);
  EXPECT_EQ(SmallLike(12, 8, 1), 4);  // 4 of 8, and not more
  EXPECT_EQ(SmallLike(6, 1, 8), 6);   // never larger than it was
  for (int64_t n = 1; n <= 200; ++n) {
    for (const int64_t degrees : {1, 2, 3, 4, 6, 8, 12}) {
      const int64_t small = SmallLike(n, degrees, 5);
      EXPECT_EQ(std::gcd(small, degrees), std::gcd(n, degrees)) << n << " " << degrees;
      EXPECT_LE(small, n);
    }
  }
}

TEST(SmallJob, KeepsTheLayoutAndShrinksTheRest) {
  const PlannedCase planned = Plan(
      {"model.n_layers=12", "model.dim=256", "model.n_heads=8", "model.vocab_size=1024",
       "training.seq_len=512", "training.global_batch_size=64",
       "parallelism.data_parallel_replicate_degree=2", "parallelism.tensor_parallel_degree=2",
       "parallelism.pipeline_parallel_degree=2",
       "parallelism.pipeline_parallel_schedule=interleaved",
       "parallelism.pipeline_parallel_chunks=2", "parallelism.pipeline_parallel_microbatches=16",
       "parallelism.zero_stage=1", "activation_checkpoint.mode=full"},
      8);
  const auto small =
      MakeSmallJob(planned.config, planned.prepared.model, planned.found.plan, false);
  ASSERT_TRUE(small.has_value()) << small.error();
  const planner::Layout& of_job = planned.found.plan.layout;
  EXPECT_EQ(small->layout.degrees, of_job.degrees);
  EXPECT_EQ(small->layout.schedule, of_job.schedule);
  EXPECT_EQ(small->layout.chunks, of_job.chunks);
  EXPECT_EQ(small->layout.zero, of_job.zero);
  EXPECT_EQ(small->layout.microbatches, 6);  // 16 leave nothing over for two stages, nor do 6
  EXPECT_EQ(small->layout.part_layers, std::vector<int>(4, 2));
  EXPECT_EQ(small->layout.recompute, std::vector(8, planner::Recompute::kFull));
  EXPECT_EQ(small->job.train.global_batch, 2 * 6 * 2);
  EXPECT_EQ(small->job.train.sequence, 8);
  EXPECT_EQ(small->vocabulary, 32);
  EXPECT_LT(small->job.parallel.bucket_bytes, planned.config.parallel.bucket_bytes / 10);
}

TEST(SmallJob, WhatDoesNotDivideStaysSo) {
  const PlannedCase planned =
      Plan({"model.vocab_size=1023", "parallelism.tensor_parallel_degree=2"}, 2);
  const auto small =
      MakeSmallJob(planned.config, planned.prepared.model, planned.found.plan, false);
  ASSERT_TRUE(small.has_value()) << small.error();
  EXPECT_EQ(small->vocabulary % 2, 1);
}

// A rehearsal computes in float64, and so do its gradients.
TEST(SmallJob, GradientsOfSixteenBitsAreNoneOfIt) {
  const PlannedCase planned =
      Plan({"training.dtype=bfloat16", "training.gradient_dtype=bfloat16"}, 1);
  EXPECT_EQ(planned.prepared.request.train.gradient_dtype, ir::DType::kBF16);
  const auto small =
      MakeSmallJob(planned.config, planned.prepared.model, planned.found.plan, false);
  ASSERT_TRUE(small.has_value()) << small.error();
  EXPECT_EQ(small->job.train.gradient_dtype, ir::DType::kF32);
}

// Fewer bytes could say otherwise in a small job.
TEST(SmallJob, AttentionMeetsSharedRowsAsInTheJob) {
  for (const char* attention : {"auto", "ring", "gather", "ulysses"}) {
    const PlannedCase planned =
        Plan({"parallelism.context_parallel_degree=2", "model.name=llama", "model.n_kv_heads=2",
              std::string("parallelism.context_parallel_attention=") + attention},
             2);
    const planner::Plan& plan = planned.found.plan;
    EXPECT_NE(plan.layout.context_attention, planner::ContextAttention::kAuto) << attention;
    const auto small = MakeSmallJob(planned.config, planned.prepared.model, plan, false);
    ASSERT_TRUE(small.has_value()) << small.error();
    EXPECT_EQ(small->layout.context_attention, plan.layout.context_attention) << attention;
  }
}

TEST(SmallJob, KeepsOneLayerOfEachWayToRecompute) {
  const PlannedCase planned =
      Plan({"model.n_layers=6", "parallelism.tensor_parallel_degree=1",
            "parallelism.pipeline_parallel_degree=1", "activation_checkpoint.mode=full",
            "activation_checkpoint.layers=1,3 selective"},
           1);
  const auto small =
      MakeSmallJob(planned.config, planned.prepared.model, planned.found.plan, false);
  ASSERT_TRUE(small.has_value()) << small.error();
  using enum planner::Recompute;
  EXPECT_EQ(small->layout.recompute, (std::vector{kNone, kFull, kSelective}));
  EXPECT_EQ(small->job.main().graph.name, planned.prepared.request.main().graph.name);
}

}  // namespace
}  // namespace meshwright::rehearsal
