#include "base/thread_team.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/unit/base/counting_allocator.h"

namespace meshwright {
namespace {

struct Block {
  int64_t begin, end;
  int thread;
};

std::vector<Block> BlocksOf(int threads, int64_t count) {
  ThreadTeam team(threads);
  std::vector<Block> blocks(static_cast<size_t>(threads), Block{-1, -1, -1});
  team.ParallelFor(count, [&](int64_t begin, int64_t end, int thread) {
    blocks[static_cast<size_t>(thread)] = {begin, end, thread};
  });
  std::erase_if(blocks, [](const Block& block) { return block.thread < 0; });
  return blocks;
}

TEST(ThreadTeam, BlocksCoverTheRangeOnceInOrderAndDifferByAtMostOne) {
  for (const int threads : {1, 2, 3, 8}) {
    for (const int64_t count : {1, 2, 5, 7, 8, 9, 64, 1000}) {
      int64_t next = 0;
      for (const Block& block : BlocksOf(threads, count)) {
        EXPECT_EQ(block.begin, next) << threads << " threads, " << count << " items";
        EXPECT_GE(block.end - block.begin, count / threads);
        EXPECT_LE(block.end - block.begin, count / threads + 1);
        next = block.end;
      }
      EXPECT_EQ(next, count) << threads << " threads";
    }
  }
}

TEST(ThreadTeam, CallerTakesTheFirstBlock) {
  ThreadTeam team(3);
  const std::thread::id caller = std::this_thread::get_id();
  std::vector<std::thread::id> ids(3);
  team.ParallelFor(3, [&](int64_t, int64_t, int thread) {
    ids[static_cast<size_t>(thread)] = std::this_thread::get_id();
  });
  EXPECT_EQ(ids[0], caller);
  EXPECT_NE(ids[1], caller);
  EXPECT_NE(ids[2], ids[1]);
}

TEST(ThreadTeam, NothingToDoCallsNobody) {
  ThreadTeam team(2);
  team.ParallelFor(0, [](int64_t, int64_t, int) { ADD_FAILURE(); });
  team.ParallelFor(-3, [](int64_t, int64_t, int) { ADD_FAILURE(); });
}

TEST(ThreadTeam, BlockBeginDoesNotOverflow) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(ThreadTeam::BlockBegin(kHuge, 64, 64), kHuge);
  EXPECT_EQ(ThreadTeam::BlockBegin(kHuge, 64, 0), 0);
}

TEST(ThreadTeam, BlockBeginNeverFalls) {
  EXPECT_TRUE(rc::check("block starts rise from 0 to count", [] {
    const auto count = *rc::gen::inRange<int64_t>(0, 1 << 20);
    const auto threads = *rc::gen::inRange(1, 100);
    RC_ASSERT(ThreadTeam::BlockBegin(count, threads, 0) == 0);
    RC_ASSERT(ThreadTeam::BlockBegin(count, threads, threads) == count);
    for (int i = 0; i < threads; ++i) {
      RC_ASSERT(ThreadTeam::BlockBegin(count, threads, i) <=
                ThreadTeam::BlockBegin(count, threads, i + 1));
    }
  }));
}

TEST(ThreadTeam, WritesOfEveryThreadAreVisibleAfterEachOfManyLoops) {
  ThreadTeam team(4);
  std::vector<int64_t> values(97, 0);
  for (int round = 1; round <= 2000; ++round) {
    team.ParallelFor(static_cast<int64_t>(values.size()), [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) values[static_cast<size_t>(i)] += i;
    });
    const int64_t sum = std::accumulate(values.begin(), values.end(), int64_t{0});
    ASSERT_EQ(sum, int64_t{96} * 97 / 2 * round);
  }
}

TEST(ThreadTeam, WakesWorkersThatHaveGoneToSleep) {
  ThreadTeam team(2);
  std::atomic<int64_t> done{0};
  for (int round = 0; round < 5; ++round) {
    // Longer than the workers spin.
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
    while (std::chrono::steady_clock::now() < until) {
    }
    team.ParallelFor(100, [&](int64_t begin, int64_t end, int) { done += end - begin; });
  }
  EXPECT_EQ(done.load(), 500);
}

TEST(ThreadTeam, CallPathDoesNotAllocate) {
  ThreadTeam team(3);
  std::vector<double> values(1000, 1.0);
  const auto loop = [&] {
    team.ParallelFor(1000, [&values](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) values[static_cast<size_t>(i)] *= 1.5;
    });
  };
  loop();  // the threads have started by its end
  const int64_t before = AllocationCount();
  for (int i = 0; i < 100; ++i) loop();
  EXPECT_EQ(AllocationCount(), before);
}

TEST(ThreadTeam, ACoreThatDoesNotExistLeavesTheTeamWorking) {
  ThreadTeam team(2, {0, 1000});
  std::atomic<int64_t> done{0};
  team.ParallelFor(10, [&](int64_t begin, int64_t end, int) { done += end - begin; });
  EXPECT_EQ(done.load(), 10);
}

TEST(ThreadTeamDeathTest, RefusesALoopInsideALoop) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        ThreadTeam team(2);
        team.ParallelFor(
            2, [&](int64_t, int64_t, int) { team.ParallelFor(2, [](int64_t, int64_t, int) {}); });
      },
      "called twice at once");
}

TEST(FunctionRef, CallsConstCallablesAndReturnsValues) {
  const auto twice = [](int x) { return 2 * x; };
  const FunctionRef<int(int)> ref = twice;
  EXPECT_EQ(ref(21), 42);
  const FunctionRef<int(int)> copy = ref;
  EXPECT_EQ(copy(4), 8);
}

}  // namespace
}  // namespace meshwright
