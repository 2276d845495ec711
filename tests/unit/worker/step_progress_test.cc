#include "worker/step_progress.h"

#include <gtest/gtest.h>

#include <array>

namespace meshwright::worker {
namespace {

TEST(StepProgress, LaunchesAreOutstandingUntilAMarkBehindThemIsDone) {
  std::array<int32_t, 2> marks{};
  StepProgress progress(marks, 10);
  progress.Start();
  progress.Give(0, 0, 1, 2);
  progress.Give(0, 1, 2, 1);
  progress.Give(1, 2, 3, 5);
  progress.Give(0, 3, 8, 1);  // a recording
  EXPECT_EQ(progress.outstanding(), 9);
  EXPECT_EQ(progress.given(0), 8u);
  EXPECT_EQ(progress.given(1), 3u);
  marks[0] = 2;
  EXPECT_EQ(progress.outstanding(), 6);
  EXPECT_EQ(progress.done(0), 2u);
  marks[1] = 3;
  EXPECT_EQ(progress.outstanding(), 1);
  EXPECT_EQ(progress.Sum(), 5);
  marks[0] = 8;
  EXPECT_EQ(progress.outstanding(), 0);
}

TEST(StepProgress, AnEmptyQueueNeedsNoMarks) {
  std::array<int32_t, 2> marks{};
  StepProgress progress(marks, 4);
  progress.Start();
  progress.Give(0, 0, 2, 7);
  progress.Give(1, 2, 3, 1);
  progress.Empty(0);
  EXPECT_EQ(progress.outstanding(), 1);
  progress.Give(0, 3, 4, 2);
  EXPECT_EQ(progress.outstanding(), 3);
  progress.Start();
  EXPECT_EQ(progress.outstanding(), 0);
  EXPECT_EQ(progress.given(0), 0u);
}

}  // namespace
}  // namespace meshwright::worker
