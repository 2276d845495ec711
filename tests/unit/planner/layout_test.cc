#include "planner/layout.h"

#include <gtest/gtest.h>

namespace meshwright::planner {
namespace {

ir::JobRequest Job(int64_t batch) {
  ir::JobRequest job;
  job.train.global_batch = batch;
  job.train.sequence = 12;
  return job;
}

TEST(ResolveLayout, DataTakesWhatTensorAndPipelineLeave) {
  ir::JobRequest job = Job(8);
  job.parallel.tensor = 2;
  const auto layout = ResolveLayout(job, 8, 4);
  ASSERT_TRUE(layout.has_value()) << layout.error();
  EXPECT_EQ(layout->data, 4);
  EXPECT_EQ(layout->microbatches, 1);
}

TEST(ResolveLayout, AutoDataShrinksUntilTheBatchDivides) {
  const auto layout = ResolveLayout(Job(6), 4, 4);
  ASSERT_TRUE(layout.has_value()) << layout.error();
  EXPECT_EQ(layout->data, 3);
}

TEST(ResolveLayout, PipelineGetsTwoMicrobatchesPerStageWhereTheyDivide) {
  ir::JobRequest job = Job(12);
  job.parallel.pipeline = 2;
  job.parallel.data = 2;
  const auto layout = ResolveLayout(job, 4, 4);
  ASSERT_TRUE(layout.has_value()) << layout.error();
  EXPECT_EQ(layout->microbatches, 3);
}

TEST(ResolveLayout, TooFewDevicesSaysHowManyMore) {
  ir::JobRequest job = Job(8);
  job.parallel.data = 4;
  job.parallel.tensor = 2;
  const auto layout = ResolveLayout(job, 6, 4);
  ASSERT_FALSE(layout.has_value());
  EXPECT_EQ(layout.error().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(layout.error().message().find("start 2 more device(s)"), std::string::npos)
      << layout.error();
}

TEST(ResolveLayout, IndivisibleBatchListsWhatFits) {
  ir::JobRequest job = Job(9);
  job.parallel.data = 2;
  const auto layout = ResolveLayout(job, 2, 4);
  ASSERT_FALSE(layout.has_value());
  EXPECT_NE(layout.error().message().find("{1, 3, 9}"), std::string::npos) << layout.error();
}

TEST(ResolveLayout, IndivisibleMicrobatchesListWhatFits) {
  ir::JobRequest job = Job(8);
  job.parallel.data = 2;
  job.parallel.microbatches = 3;
  const auto layout = ResolveLayout(job, 2, 4);
  ASSERT_FALSE(layout.has_value());
  EXPECT_NE(layout.error().message().find("{1, 2, 4}"), std::string::npos) << layout.error();
}

TEST(ResolveLayout, MoreStagesThanLayersIsRefused) {
  ir::JobRequest job = Job(8);
  job.parallel.pipeline = 4;
  const auto layout = ResolveLayout(job, 4, 2);
  ASSERT_FALSE(layout.has_value());
  EXPECT_NE(layout.error().message().find("pipeline <= 2"), std::string::npos) << layout.error();
}

TEST(ResolveLayout, SequenceParallelNeedsADivisibleSequence) {
  ir::JobRequest job = Job(8);
  job.parallel.tensor = 8;
  job.parallel.sequence_parallel = true;
  const auto layout = ResolveLayout(job, 8, 2);
  ASSERT_FALSE(layout.has_value());
  EXPECT_NE(layout.error().message().find("sequence"), std::string::npos) << layout.error();
}

}  // namespace
}  // namespace meshwright::planner
