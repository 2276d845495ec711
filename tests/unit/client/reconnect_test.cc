#include "client/reconnect.h"

#include <gtest/gtest.h>

#include "tests/fake_clock.h"

namespace meshwright::client {
namespace {

TEST(Reconnect, PausesDoubleUpToTwoSeconds) {
  const FakeClock clock;
  Reconnect reconnect(60'000, clock);
  for (const int64_t pause_ms : {50, 100, 200, 400, 800, 1600, 2000, 2000}) {
    EXPECT_EQ(reconnect.PauseAfter(false), pause_ms);
  }
  EXPECT_EQ(reconnect.PauseAfter(true), 0) << "one that stood is made again at once";
  EXPECT_EQ(reconnect.PauseAfter(false), 50);
}

TEST(Reconnect, IsGivenUpWhenAttemptsFailedForItsPatience) {
  FakeClock clock;
  Reconnect reconnect(1'000, clock);
  clock.AdvanceMs(999);
  EXPECT_TRUE(reconnect.PauseAfter(false).has_value());
  clock.AdvanceMs(2);
  EXPECT_FALSE(reconnect.PauseAfter(false).has_value());
}

// A session of a job in the queue is silent for hours.
TEST(Reconnect, TimeCountsFromTheBreak) {
  FakeClock clock;
  Reconnect reconnect(1'000, clock);
  clock.AdvanceMs(3'600'000);
  EXPECT_TRUE(reconnect.PauseAfter(true).has_value());
  clock.AdvanceMs(999);
  EXPECT_TRUE(reconnect.PauseAfter(false).has_value());
  clock.AdvanceMs(2);
  EXPECT_FALSE(reconnect.PauseAfter(false).has_value());
}

}  // namespace
}  // namespace meshwright::client
