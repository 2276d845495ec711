#include "base/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <vector>

namespace meshwright {
namespace {

TEST(Executor, RunsTasksInTheOrderTheyWerePosted) {
  std::vector<int> seen;
  {
    Executor executor("order");
    for (int i = 0; i < 1000; ++i) EXPECT_TRUE(executor.Post([&seen, i] { seen.push_back(i); }));
  }
  ASSERT_EQ(seen.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i);
}

TEST(Executor, KnowsItsOwnThread) {
  Executor executor("loop"), other("other");
  std::promise<std::vector<bool>> answer;
  executor.Post([&] { answer.set_value({executor.InLoop(), other.InLoop()}); });
  EXPECT_EQ(answer.get_future().get(), (std::vector<bool>{true, false}));
  EXPECT_FALSE(executor.InLoop());
}

TEST(Executor, StopRunsWhatWasPostedAndRefusesMore) {
  Executor executor("stop");
  std::promise<void> gate;
  std::atomic<int> ran{0};
  executor.Post([&] { gate.get_future().wait(); });
  for (int i = 0; i < 10; ++i) executor.Post([&] { ++ran; });
  gate.set_value();
  executor.Stop();
  EXPECT_EQ(ran.load(), 10);
  EXPECT_FALSE(executor.Post([&] { ++ran; }));
  EXPECT_FALSE(executor.PostAfter(0, [&] { ++ran; }));
  executor.Stop();
  EXPECT_EQ(ran.load(), 10);
}

TEST(Executor, StopDropsTimersThatAreNotDue) {
  std::atomic<int> ran{0};
  Executor executor("timers");
  executor.PostAfter(3'600'000, [&] { ++ran; });
  executor.Stop();
  EXPECT_EQ(ran.load(), 0);
}

TEST(Executor, TimersRunInTheOrderOfTheirTimesNotBeforeThem) {
  Executor executor("timers");
  std::vector<int> seen;
  std::promise<int64_t> done_ns;
  const int64_t start_ns = SystemClock().NowNs();
  executor.PostAfter(30, [&] {
    seen.push_back(30);
    done_ns.set_value(SystemClock().NowNs());
  });
  executor.PostAfter(10, [&] { seen.push_back(10); });
  executor.PostAfter(10, [&] { seen.push_back(11); });
  executor.Post([&] { seen.push_back(0); });
  EXPECT_GE(done_ns.get_future().get() - start_ns, 30'000'000);
  executor.Stop();
  EXPECT_EQ(seen, (std::vector<int>{0, 10, 11, 30}));
}

TEST(Executor, TasksMayPostTasks) {
  Executor executor("chain");
  std::promise<int> done;
  std::function<void(int)> step = [&](int left) {
    if (left == 0) {
      done.set_value(1);
    } else {
      executor.Post([&step, left] { step(left - 1); });
    }
  };
  executor.Post([&] { step(100); });
  EXPECT_EQ(done.get_future().get(), 1);
}

TEST(Executor, KeepsEachPostersOrderUnderContention) {
  std::vector<std::pair<int, int>> seen;
  {
    Executor executor("contended");
    std::vector<std::thread> posters;
    for (int poster = 0; poster < 4; ++poster) {
      posters.emplace_back([&executor, &seen, poster] {
        for (int i = 0; i < 500; ++i) {
          executor.Post([&seen, poster, i] { seen.emplace_back(poster, i); });
        }
      });
    }
    for (std::thread& poster : posters) poster.join();
  }
  ASSERT_EQ(seen.size(), 2000u);
  std::vector<int> next(4, 0);
  for (const auto& [poster, i] : seen) EXPECT_EQ(i, next[static_cast<size_t>(poster)]++);
}

TEST(ExecutorDeathTest, NamesItselfWhenATaskThrows) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        Executor executor("fragile");
        executor.Post([] { throw std::runtime_error("boom"); });
        executor.Stop();
      },
      "exception in executor fragile: boom");
}

}  // namespace
}  // namespace meshwright
