#include "worker/link_timing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/ticking_clock.h"
#include "worker/core_share.h"

namespace meshwright::worker {
namespace {

using ::testing::HasSubstr;

TEST(TimeLinks, MeasuresEveryTransportOfThisHost) {
  for (const char* transport : {"auto", "shm", "tcp"}) {
    const auto timings = TimeLinks({.transport = transport}, SystemClock());
    ASSERT_TRUE(timings.has_value()) << transport << ": " << timings.error();
    for (const LinkTiming& link : {timings->process, timings->host}) {
      EXPECT_GE(link.latency_s, 0) << transport;
      EXPECT_LT(link.latency_s, 0.5) << transport;
      EXPECT_GT(link.seconds_per_byte, 0) << transport;  // a busy machine can hide nearly all of it
      EXPECT_LT(link.seconds_per_byte, 1e-6) << transport;
    }
  }
}

TEST(TimeLinks, TellsLatencyFromBytes) {
  // Time is as long for every batch, so that what one does is known exactly. Two threads ask.
  // A batch of 50 small calls seems to take as long as one of 2 large ones, or a few times that
  // when both threads ask at once.
  const auto timings = TimeLinks({}, TickingClock());
  ASSERT_TRUE(timings.has_value()) << timings.error();
  EXPECT_GT(timings->process.seconds_per_byte, (1e-3 / 2 - 8e-3 / 50) / (4 << 20));
  EXPECT_LT(timings->process.latency_s, 8e-3 / 50 / 2);
}

TEST(TimeLinks, AnUnknownTransportIsNamed) {
  const auto timings = TimeLinks({.transport = "pigeon"}, SystemClock());
  ASSERT_FALSE(timings.has_value());
  EXPECT_EQ(timings.error().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(timings.error().message(), HasSubstr("transport is 'pigeon'"));
}

TEST(MeasureCoreShare, IsAPartOfTheCoresAndMoreThreadsGetNoMore) {
  const double one = MeasureCoreShare(1, SystemClock());
  EXPECT_GT(one, 0);
  EXPECT_LE(one, 1);
  // Sixteen times as many threads as the machine has cores get a sixteenth each, whoever else runs.
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  EXPECT_LT(MeasureCoreShare(16 * cores, SystemClock()), 0.2);
}

}  // namespace
}  // namespace meshwright::worker
