#include "client/watch_again.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/fake_clock.h"

namespace meshwright::client {
namespace {

// A controller with a history, that may be away.
struct FakeHistory {
  FakeClock clock;
  std::vector<int> connections;  // how many records each one tells before it breaks; below 0: none
  size_t next = 0;
  std::vector<int64_t> told;
  int64_t records = 10;

  Status Once(WatchProgress& progress, int64_t) {
    if (next >= connections.size()) {
      next = connections.size() + 1;
      return Unavailable("nobody is there");
    }
    const int tells = connections[next++];
    if (tells < 0) return Unavailable("nobody is there");
    progress.last = proto::JobInfo{};
    ++progress.updates;
    for (int i = 0; i < tells && progress.steps < records; ++i) told.push_back(progress.steps++);
    progress.last->steps_done = progress.steps;
    return progress.steps == records ? OkStatus() : Unavailable("broken");
  }
  Result<proto::JobInfo> Watch(int64_t timeout_ms = 0, int64_t patience_ms = 10'000) {
    return WatchAgain([this](WatchProgress& p, int64_t ms) { return Once(p, ms); }, timeout_ms,
                      patience_ms, [this](int64_t ms) { clock.AdvanceMs(ms); }, clock);
  }
};

TEST(WatchAgain, TellsEveryRecordOnceOverBrokenConnections) {
  FakeHistory history;
  history.connections = {3, 0, -1, -1, 4, 1, -1, 100};
  const auto last = history.Watch();
  ASSERT_TRUE(last.has_value()) << last.error();
  EXPECT_EQ(last->steps_done, 10);
  EXPECT_EQ(history.told, (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(WatchAgain, OneThatWasNeverThereIsAnErrorAtOnce) {
  FakeHistory history;
  history.connections = {-1, 10};
  EXPECT_EQ(history.Watch().error().code(), StatusCode::kUnavailable);
  EXPECT_EQ(history.next, 1u);
}

TEST(WatchAgain, OneThatStaysAwayIsGivenUp) {
  FakeHistory history;
  history.connections = {3};
  EXPECT_EQ(history.Watch().error().message(), "nobody is there");
  EXPECT_GE(history.clock.NowMs(), 10'000);
  FakeHistory hasty;
  hasty.connections = {3};
  EXPECT_FALSE(hasty.Watch(0, /*patience_ms=*/0).has_value());
  EXPECT_EQ(hasty.next, 1u);
}

TEST(WatchAgain, TheCallersTimeBoundsItAll) {
  FakeHistory history;
  history.connections = {3};
  const auto last = history.Watch(/*timeout_ms=*/2000);
  ASSERT_TRUE(last.has_value()) << last.error();
  EXPECT_EQ(last->steps_done, 3) << "what was known last";
}

}  // namespace
}  // namespace meshwright::client
