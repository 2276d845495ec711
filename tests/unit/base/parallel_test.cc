#include "base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/thread_team.h"

namespace meshwright {
namespace {

TEST(ParallelItems, CallsEachItemOnce) {
  for (const int64_t count : {0, 1, 7, 1000}) {
    for (const int64_t least : {1, 4, 5000}) {
      std::vector<int> calls(static_cast<size_t>(count));
      std::atomic<int64_t> sum = 0;
      ParallelItems(count, least, [&](int64_t i) {
        ++calls[static_cast<size_t>(i)];
        sum += i;
      });
      EXPECT_EQ(calls, std::vector<int>(static_cast<size_t>(count), 1)) << count << ", " << least;
      EXPECT_EQ(sum, count * (count - 1) / 2);
    }
  }
}

// With a block of neighbours for each of two threads the second item would wait behind the first.
TEST(ParallelItems, WhoIsFreeTakesTheNextItem) {
  if (ThreadTeam::MostAtOnce() != 2) GTEST_SKIP() << "two threads show it";
  std::atomic<int> done = 0;
  ParallelItems(4, 1, [&](int64_t i) {
    while (i == 0 && done < 3) std::this_thread::yield();
    ++done;
  });
  EXPECT_EQ(done, 4);
}

TEST(ParallelItems, WhatABodyThrowsReachesTheCaller) {
  for (const int64_t bad : {0, 7}) {  // the first, the last
    const auto throws = [&] {
      ParallelItems(8, 1, [&](int64_t i) {
        if (i == bad) throw std::runtime_error("body");
      });
    };
    EXPECT_THROW(throws(), std::runtime_error);
  }
}

}  // namespace
}  // namespace meshwright
