#include "cli/live_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/job_view.h"
#include "tests/fake_clock.h"

namespace meshwright::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

client::JobUpdate LiveUpdate(int64_t done) {
  client::JobUpdate update;
  update.info.state = client::JobState::kRunning;
  update.info.steps = 600;
  update.info.steps_done = done;
  client::StepMetrics step;
  step.step = done - 1;
  step.loss = 2.312;
  step.tokens = 2000;
  step.seconds = 0.05;
  update.steps.push_back(step);
  return update;
}

TEST(LiveLine, ShowsProgressPaceAndTheTimeThatIsLeft) {
  FakeClock clock;
  LiveLine line(clock, 80);
  EXPECT_EQ(line.Draw(LiveUpdate(270)),
            "\r\x1b[K[#########-----------] 45%  270/600  loss 2.3120  40.0k tokens/s  "
            "16.5 s left");
  EXPECT_EQ(line.Draw(LiveUpdate(271)), "") << "not ten times a second and more";
  clock.AdvanceMs(100);
  EXPECT_THAT(line.Draw(LiveUpdate(600)), HasSubstr("[####################] 100%  600/600"));
  EXPECT_EQ(line.Clear(), "\r\x1b[K");
  EXPECT_EQ(line.Clear(), "") << "there is nothing to clear";
  EXPECT_THAT(line.Draw(LiveUpdate(300)), StartsWith("\r\x1b[K[")) << "drawn anew at once";
}

TEST(LiveLine, SaysWhatAJobWaitsForAndEndsWithIt) {
  FakeClock clock;
  LiveLine line(clock, 80);
  client::JobUpdate update;
  update.info.state = client::JobState::kQueued;
  update.info.message = "waits behind job 14\n(2 ahead)";
  EXPECT_EQ(line.Draw(update), "\r\x1b[KQUEUED  waits behind job 14 (2 ahead)");
  update.info.state = client::JobState::kSucceeded;
  EXPECT_EQ(line.Draw(update), "\r\x1b[K");
  EXPECT_EQ(line.Clear(), "");
}

TEST(LiveLine, FitsTheTerminalAndIsNothingWithoutOne) {
  FakeClock clock;
  LiveLine narrow(clock, 20);
  EXPECT_EQ(narrow.Draw(LiveUpdate(270)), "\r\x1b[K[#########---------");
  LiveLine none(clock, 0);
  EXPECT_EQ(none.Draw(LiveUpdate(270)), "");
  EXPECT_EQ(none.Clear(), "");
}

TEST(EventText, HasTheTimeOfTheDayAndLeavesOutWhatStepLinesSay) {
  EXPECT_EQ(EventText("2026-11-27T05:30:22.880Z running: data=2"), "05:30:22 running: data=2");
  EXPECT_EQ(EventText("2026-11-27T05:30:22.880Z step 20: loss 5.4, validation loss 5.3 (..)"), "");
  EXPECT_EQ(EventText("2026-11-27T05:30:22.880Z note: profile: as steps have shown it"), "");
  EXPECT_EQ(EventText("no stamp\x1b[2J"), "no stamp\\x1b[2J");
}

}  // namespace
}  // namespace meshwright::cli
