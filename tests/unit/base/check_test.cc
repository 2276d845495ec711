#include "base/check.h"

#include <gtest/gtest.h>

namespace meshwright {
namespace {

TEST(Check, PassesWithoutEvaluatingTheMessage) {
  int evaluated = 0;
  MW_CHECK(1 + 1 == 2) << ++evaluated;
  EXPECT_EQ(evaluated, 0);
}

TEST(CheckDeathTest, AbortsWithPlaceConditionAndValues) {
  const int slots = 3;
  EXPECT_DEATH(MW_CHECK(slots == 4) << "slots=" << slots,
               "check_test.cc:[0-9]+ check failed: slots == 4 slots=3");
}

TEST(Check, IsOneStatementInsideIfElse) {
  bool reached = false;
  if (true)
    MW_CHECK(true);
  else
    reached = true;
  EXPECT_FALSE(reached);
}

}  // namespace
}  // namespace meshwright
