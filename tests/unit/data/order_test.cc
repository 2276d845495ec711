#include "data/order.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

namespace meshwright::data {
namespace {

RC_GTEST_PROP(PermutedIndex, IsAPermutation, ()) {
  const auto size = *rc::gen::inRange<int64_t>(1, 700);
  const auto key = *rc::gen::arbitrary<uint64_t>();
  std::vector<bool> seen(static_cast<size_t>(size), false);
  for (int64_t i = 0; i < size; ++i) {
    const int64_t at = PermutedIndex(i, size, key);
    RC_ASSERT(at >= 0 && at < size);
    RC_ASSERT(!seen[static_cast<size_t>(at)]);
    seen[static_cast<size_t>(at)] = true;
  }
}

// Runs of before are repeated: the order of a seed is a promise. The numbers come from the
// same formulas in another language.
TEST(PermutedIndex, KeepsTheOrderThatASeedHasAlwaysGiven) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < 10; ++i) {
    order.push_back(PermutedIndex(i, 10, EpochBits(5, 2, "data/window")));
  }
  EXPECT_EQ(order, (std::vector<int64_t>{0, 5, 8, 1, 3, 7, 2, 9, 4, 6}));
}

}  // namespace
}  // namespace meshwright::data
