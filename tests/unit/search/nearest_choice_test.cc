// Variants of a layout with fewer collectives.
#include "search/nearest_choice.h"

#include <gtest/gtest.h>

namespace meshwright::search {
namespace {

using planner::Recompute;

ir::JobRequest OpenJob() {
  ir::JobRequest job;
  job.parallel = ir::OpenParallel();
  job.parallel.part_layers = "2,1";
  return job;
}

planner::Layout LayoutOf(int64_t microbatches, int64_t zero) {
  planner::Layout layout;
  layout.data = 2;
  layout.tensor = 4;
  layout.microbatches = microbatches;
  layout.zero = zero;
  layout.recompute = {Recompute::kFull, Recompute::kNone};
  return layout;
}

TEST(JobsWithFewerMicrobatches, AreThoseOfItsDivisorsFromTheFewest) {
  const auto jobs = JobsWithFewerMicrobatches(OpenJob(), LayoutOf(6, 1));
  ASSERT_EQ(jobs.size(), 3U);
  for (size_t i = 0; i < jobs.size(); ++i) {
    const ir::ParallelSpec& pinned = jobs[i].parallel;
    EXPECT_EQ(pinned.microbatches, static_cast<int64_t>(i + 1));
    EXPECT_EQ(pinned.data, 2);
    EXPECT_EQ(pinned.tensor, 4);
    EXPECT_EQ(pinned.zero, -1) << "what fits without may need it with more rows at once";
    EXPECT_EQ(pinned.recompute, "full") << "nothing more is computed again";
    EXPECT_EQ(pinned.recompute_layers, "0 full, 1 none");
    EXPECT_EQ(pinned.part_layers, "2,1");
  }
}

TEST(JobsWithFewerMicrobatches, AreNoneWhereStagesNeedThemOrTheJobSaysHowMany) {
  EXPECT_TRUE(JobsWithFewerMicrobatches(OpenJob(), LayoutOf(1, 0)).empty());
  planner::Layout staged = LayoutOf(6, 0);
  staged.pipeline = 2;
  EXPECT_TRUE(JobsWithFewerMicrobatches(OpenJob(), staged).empty());
  ir::JobRequest pinned = OpenJob();
  pinned.parallel.microbatches = 6;
  EXPECT_TRUE(JobsWithFewerMicrobatches(pinned, LayoutOf(6, 0)).empty());
}

TEST(JobsWithoutZero, HaveTheSameDegreesAndMicrobatches) {
  const auto jobs = JobsWithoutZero(OpenJob(), LayoutOf(6, 3));
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_EQ(jobs[0].parallel.zero, 0);
  EXPECT_EQ(jobs[0].parallel.microbatches, 6);
  EXPECT_EQ(jobs[0].parallel.tensor, 4);
  EXPECT_TRUE(JobsWithoutZero(OpenJob(), LayoutOf(6, 0)).empty());
  ir::JobRequest asked = OpenJob();
  asked.parallel.zero = 2;
  EXPECT_TRUE(JobsWithoutZero(asked, LayoutOf(6, 2)).empty());
  planner::Layout meshes = LayoutOf(6, 2);
  meshes.stage_degrees = {{2, 1}, {1, 1}};
  EXPECT_TRUE(JobsWithoutZero(OpenJob(), meshes).empty());
}

}  // namespace
}  // namespace meshwright::search
