// Names of schedules, and the number that two of them have.
#include "ir/rate_schedule.h"

#include <gtest/gtest.h>

namespace meshwright::ir {
namespace {

TEST(RateSchedule, HasANumberBehindItsName) {
  const auto power = ParseSchedule("polynomial:2.5");
  ASSERT_TRUE(power.has_value());
  EXPECT_EQ(power->name, "polynomial");
  EXPECT_EQ(power->number, 2.5);
  EXPECT_EQ(ParseSchedule("polynomial")->number, 1);
  EXPECT_EQ(ParseSchedule("cosine_with_restarts:3")->number, 3);
  EXPECT_EQ(ParseSchedule("inverse_sqrt")->name, "inverse_sqrt");
  EXPECT_TRUE(EndsAtTotalSteps("polynomial:2"));
  EXPECT_TRUE(EndsAtTotalSteps("cosine_with_restarts"));
  EXPECT_FALSE(EndsAtTotalSteps("relative"));
}

TEST(RateSchedule, OfAnotherNameOrNumberIsNone) {
  for (const char* bad :
       {"", ":", "poly", "linear:2", "polynomial:", "polynomial:x", "polynomial:2x", "polynomial:0",
        "polynomial:-1", "polynomial:nan", "polynomial:101", "cosine_with_restarts:0",
        "cosine_with_restarts:1.5", "cosine_with_restarts:1e9", "cosine:2"}) {
    EXPECT_FALSE(IsSchedule(bad)) << bad;
  }
}

}  // namespace
}  // namespace meshwright::ir
