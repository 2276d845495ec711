#include "planner/stages.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>

#include "planner/schedule.h"

namespace meshwright::planner {
namespace {

TEST(Schedule, OneForwardOneBackwardGolden) {
  const auto schedule = MakeSchedule("1f1b", {4, 1, false}, 5);
  ASSERT_TRUE(schedule.has_value());
  EXPECT_EQ(FormatSchedule((*schedule)[0]), "F0 F1 F2 F3 B0 F4 B1 B2 B3 B4");
  EXPECT_EQ(FormatSchedule((*schedule)[3]), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4");
}

TEST(Schedule, GPipeGolden) {
  const auto schedule = MakeSchedule("gpipe", {2, 1, false}, 3);
  ASSERT_TRUE(schedule.has_value());
  EXPECT_EQ(FormatSchedule((*schedule)[0]), "F0 F1 F2 B0 B1 B2");
}

TEST(Schedule, EveryMicrobatchRunsOnceEachWay) {
  EXPECT_TRUE(rc::check([] {
    const int stages = *rc::gen::inRange(1, 9);
    const int microbatches = *rc::gen::inRange(1, 17);
    const auto name = *rc::gen::element(std::string("gpipe"), std::string("1f1b"));
    const auto schedule = MakeSchedule(name, {stages, 1, false}, microbatches);
    RC_ASSERT(schedule.has_value());
    for (int s = 0; s < stages; ++s) {
      int forward = 0, backward = 0, most = 0;
      for (const ScheduleStep& step : (*schedule)[static_cast<size_t>(s)]) {
        int& next = step.phase == ir::Phase::kForward ? forward : backward;
        RC_ASSERT(step.microbatch == next++);
        RC_ASSERT(backward <= forward);
        most = std::max(most, forward - backward);
      }
      RC_ASSERT(forward == microbatches && backward == microbatches);
      RC_ASSERT(most == (name == "gpipe" ? microbatches : std::min(microbatches, stages - s)));
    }
  }));
}

TEST(Schedule, InterleavedGolden) {
  const auto schedule = MakeSchedule("interleaved", {2, 2, false}, 4);
  ASSERT_TRUE(schedule.has_value());
  EXPECT_EQ(FormatSchedule((*schedule)[0]),
            "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 B3.0");
  EXPECT_EQ(FormatSchedule((*schedule)[1]),
            "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0");
}

TEST(Schedule, ZeroBubbleGolden) {
  const auto schedule = MakeSchedule("zb-h1", {3, 1, false}, 4);
  ASSERT_TRUE(schedule.has_value());
  EXPECT_EQ(FormatSchedule((*schedule)[0]), "F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3");
  EXPECT_EQ(FormatSchedule((*schedule)[2]), "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3");
}

TEST(Schedule, SecondZeroBubbleGolden) {
  const auto schedule = MakeSchedule("zb-h2", {3, 1, false}, 6);
  ASSERT_TRUE(schedule.has_value());
  EXPECT_EQ(FormatSchedule((*schedule)[0]),
            "F0 F1 F2 F3 F4 B0 W0 F5 B1 W1 B2 W2 B3 W3 B4 W4 B5 W5");
  EXPECT_EQ(FormatSchedule((*schedule)[2]),
            "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 W0 F5 B5 W1 W2 W3 W4 W5");
}

TEST(Schedule, FoldedGoldensThatHoldLittle) {
  const auto half = MakeSchedule("v-half", {2, 2, true}, 3);
  ASSERT_TRUE(half.has_value());
  EXPECT_EQ(FormatSchedule((*half)[0]),
            "F0.0 F0.1 F1.0 B0.1 W0.1 F1.1 F2.0 B0.0 B1.1 "
            "W0.0 W1.1 F2.1 B1.0 B2.1 W1.0 W2.1 B2.0 W2.0");
  EXPECT_EQ(FormatSchedule((*half)[1]),
            "F0.0 F0.1 F1.0 F1.1 B0.1 B0.0 W0.1 F2.0 W0.0 "
            "F2.1 B1.1 B1.0 W1.1 W1.0 B2.1 B2.0 W2.1 W2.0");
  const auto min = MakeSchedule("v-min", {2, 2, true}, 3);
  ASSERT_TRUE(min.has_value());
  EXPECT_EQ(FormatSchedule((*min)[0]),
            "F0.0 F0.1 B0.1 F1.0 W0.1 B0.0 W0.0 F1.1 B1.1 "
            "F2.0 W1.1 B1.0 W1.0 F2.1 B2.1 W2.1 B2.0 W2.0");
  EXPECT_EQ(FormatSchedule((*min)[1]),
            "F0.0 F0.1 B0.1 B0.0 F1.0 F1.1 W0.1 W0.0 B1.1 "
            "B1.0 F2.0 F2.1 W1.1 W1.0 B2.1 B2.0 W2.1 W2.0");
}

// Each stage runs F, B and W of every part that it holds once per microbatch, in this order; with
// everything else ready in time, the stages together never wait for each other in a circle.
TEST(Schedule, PartsRunInOrderAndStagesDoNotWaitInACircle) {
  EXPECT_TRUE(rc::check([] {
    const auto name = *rc::gen::element(
        std::string("interleaved"), std::string("zb-h1"), std::string("zb-h2"), std::string("zb-v"),
        std::string("v-half"), std::string("v-min"), std::string("1f1b"));
    const int stages = *rc::gen::inRange(2, 7);
    const int chunks = name == "interleaved" ? *rc::gen::inRange(1, 5) : 0;
    const auto shape = ShapeOfSchedule(name, stages, chunks);
    RC_ASSERT(shape.has_value());
    const int microbatches = *rc::gen::inRange(1, 25);
    const auto schedule = MakeSchedule(name, *shape, microbatches);
    RC_ASSERT(schedule.has_value());
    // done[part][microbatch]: F, B, W so far.
    std::map<std::pair<int, int>, int> done;
    std::vector<size_t> next(static_cast<size_t>(stages));
    size_t ran = 0;
    for (bool progress = true; progress;) {
      progress = false;
      for (int s = 0; s < stages; ++s) {
        const StageSchedule& steps = (*schedule)[static_cast<size_t>(s)];
        while (next[static_cast<size_t>(s)] < steps.size()) {
          const ScheduleStep& step = steps[next[static_cast<size_t>(s)]];
          const int part = shape->PartOf(s, step.chunk);
          const auto count = [&](int p) { return done[{p, step.microbatch}]; };
          const bool last = part == shape->parts() - 1;
          const bool ready = step.phase == ir::Phase::kForward ? part == 0 || count(part - 1) >= 1
                             : step.weights                    ? true
                                                               : last || count(part + 1) >= 2;
          if (!ready) break;
          const int expected = step.phase == ir::Phase::kForward ? 0 : step.weights ? 2 : 1;
          RC_ASSERT(count(part) == expected);
          ++done[{part, step.microbatch}];
          ++next[static_cast<size_t>(s)];
          ++ran;
          progress = true;
        }
      }
    }
    const int kinds = SplitsBackward(name) ? 3 : 2;
    RC_ASSERT(ran == static_cast<size_t>(shape->parts() * microbatches * kinds));
    for (int s = 0; s < stages; ++s) {
      RC_ASSERT(next[static_cast<size_t>(s)] == (*schedule)[static_cast<size_t>(s)].size());
    }
  }));
}

TEST(Schedule, FoldedShapesGoThereAndBack) {
  const PipelineShape folded{3, 2, true};
  for (int part = 0; part < folded.parts(); ++part) {
    EXPECT_EQ(folded.StageOf(part),
              (std::vector<int>{0, 1, 2, 2, 1, 0})[static_cast<size_t>(part)]);
    EXPECT_EQ(folded.PartOf(folded.StageOf(part), folded.ChunkOf(part)), part);
  }
  const PipelineShape round{3, 2, false};
  EXPECT_EQ(round.StageOf(4), 1);
  EXPECT_EQ(round.PartOf(1, 1), 4);
}

TEST(Schedule, ShapesThatDoNotExistAreRefused) {
  const auto chunks = ShapeOfSchedule("1f1b", 2, 2);
  ASSERT_FALSE(chunks.has_value());
  EXPECT_NE(chunks.error().message().find("schedule 1f1b has 1 chunk(s) per stage, not 2"),
            std::string::npos);
}

TEST(Schedule, UnknownNameListsTheKnown) {
  const auto schedule = MakeSchedule("zigzag", {2, 1, false}, 2);
  ASSERT_FALSE(schedule.has_value());
  EXPECT_NE(
      schedule.error().message().find(
          "1f1b, gpipe, 1f1b-vocab, gpipe-vocab, interleaved, zb-h1, zb-h2, zb-v, v-half, v-min"),
      std::string::npos);
}

}  // namespace
}  // namespace meshwright::planner
