#include "worker/step_recorder.h"

#include <gtest/gtest.h>

namespace meshwright::worker {
namespace {

// Ten more at each look.
class LookedAt final : public Clock {
 public:
  int64_t NowNs() const override { return 10 * ++looks; }
  int64_t UnixMs() const override { return 0; }
  mutable int64_t looks = 0;
};

TEST(StepRecorder, LooksAtTheClockOnceForAMarkAndNeverWhileNobodyAsks) {
  LookedAt clock;
  StepRecorder recorder(clock);
  recorder.Mark(0, ir::StepMark::kWhole);
  recorder.End();
  EXPECT_EQ(clock.looks, 0);

  ir::StepRecord record;
  record.marks.reserve(3);
  recorder.Begin(record);
  recorder.Mark(0, 4);
  recorder.Mark(0, ir::StepMark::kWhole);
  recorder.Mark(1, ir::StepMark::kAwaited);
  EXPECT_EQ(clock.looks, 4);
  const auto* const room = record.marks.data();
  for (int i = 0; i < 5; ++i) recorder.Mark(2, ir::StepMark::kWhole);
  EXPECT_EQ(clock.looks, 4) << "what has no room is counted only";
  recorder.End();
  EXPECT_EQ(clock.looks, 5);
  recorder.Mark(3, ir::StepMark::kWhole);
  EXPECT_EQ(clock.looks, 5);

  EXPECT_EQ(record.begin_ns, 10);
  EXPECT_EQ(record.end_ns, 50);
  EXPECT_EQ(record.left_out, 5);
  EXPECT_EQ(record.marks.data(), room) << "it takes no memory of its own";
  const std::vector<ir::StepMark> marks = {
      {0, 4, 20}, {0, ir::StepMark::kWhole, 30}, {1, ir::StepMark::kAwaited, 40}};
  EXPECT_EQ(record.marks, marks);
}

}  // namespace
}  // namespace meshwright::worker
