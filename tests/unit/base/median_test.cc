#include "base/median.h"

#include <gtest/gtest.h>

namespace meshwright {
namespace {

TEST(Median, IsTheMiddle) {
  EXPECT_DOUBLE_EQ(Median({5}), 5);
  EXPECT_DOUBLE_EQ(Median({9, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(Median({9, 1, 2, 4}), 3);
  EXPECT_DOUBLE_EQ(Median({}), 0);
}

}  // namespace
}  // namespace meshwright
