#include "web/history.h"

#include <gtest/gtest.h>

namespace meshwright::web {
namespace {

constexpr int64_t kHour = 3'600'000;
constexpr int64_t kStart = 1'700'000'000'000;

// A sample every 5 s, whose number of devices is the hour that it was taken in.
History HistoryOf(int64_t hours) {
  History history;
  for (int64_t at = 0; at < hours * kHour; at += 5000) {
    Sample sample;
    sample.unix_ms = kStart + at;
    sample[Gauge::kDevices] = static_cast<double>(at / kHour);
    history.Add(sample);
  }
  return history;
}

TEST(History, TheLastHourIsFineAndEarlierOnesAreCoarse) {
  const History history = HistoryOf(10);
  const auto samples = history.Since(kStart, 100'000);
  ASSERT_GT(samples.size(), 1000u);
  EXPECT_LT(samples.size(), 1500u);
  for (size_t i = 1; i < samples.size(); ++i) {
    ASSERT_LT(samples[i - 1].unix_ms, samples[i].unix_ms);
  }
  EXPECT_LE(samples.front().unix_ms, kStart + 60'000);
  EXPECT_GE(samples.back().unix_ms, kStart + 10 * kHour - 5000);
  EXPECT_EQ(samples[1].unix_ms - samples[0].unix_ms, 60'000);
  EXPECT_EQ(samples.back().unix_ms - samples[samples.size() - 2].unix_ms, 5000);
  Sample first = samples.front();
  Sample last = samples.back();
  EXPECT_EQ(first[Gauge::kDevices], 0);
  EXPECT_EQ(last[Gauge::kDevices], 9);
}

TEST(History, DoesNotGrowWithoutEnd) {
  const History history = HistoryOf(24 * 9);
  const auto samples = history.Since(0, 1'000'000);
  EXPECT_LT(samples.size(), 2500u);
  // A week is known, and not more.
  EXPECT_GE(samples.front().unix_ms, kStart + 2 * 24 * kHour - kHour);
  EXPECT_LE(samples.front().unix_ms, kStart + 2 * 24 * kHour + kHour);
}

TEST(History, SinceLeavesOutWhatIsOlderAndThinsTheRest) {
  const History history = HistoryOf(3);
  const int64_t since = kStart + 2 * kHour;
  const auto all = history.Since(since, 100'000);
  ASSERT_FALSE(all.empty());
  EXPECT_GE(all.front().unix_ms, since);
  const auto thin = history.Since(since, 50);
  EXPECT_LE(thin.size(), 50u);
  EXPECT_GE(thin.size(), 25u);
  EXPECT_EQ(thin.back().unix_ms, all.back().unix_ms);
  Sample mean = thin.front();
  EXPECT_EQ(mean[Gauge::kDevices], 2);
}

TEST(History, KnowsNothingAtFirstAndTheFirstSampleAtOnce) {
  History history;
  EXPECT_TRUE(history.Since(0, 10).empty());
  Sample sample;
  sample.unix_ms = kStart;
  history.Add(sample);
  EXPECT_EQ(history.Since(0, 10).size(), 1u);
}

}  // namespace
}  // namespace meshwright::web
