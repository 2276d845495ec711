#include "base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

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

TEST(ParallelItems, WhatABodyThrowsReachesTheCaller) {
  for (const int64_t bad : {0, 7}) {  // of the caller's block, of the last thread's
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
