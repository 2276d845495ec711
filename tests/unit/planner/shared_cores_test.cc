#include "planner/shared_cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace meshwright::planner {
namespace {

using ::testing::ElementsAre;

TEST(SharedCores, HaveTheirFullSpeedWhileThereIsACoreForEveryThread) {
  SharedCores cores(4);
  cores.Begin(0, 1, 5, 2);
  cores.Begin(1, 2, 5, 2);
  EXPECT_DOUBLE_EQ(*cores.NextEnd(), 6);
  EXPECT_THAT(cores.Finish(6), ElementsAre(0));
  EXPECT_DOUBLE_EQ(*cores.NextEnd(), 7);
  EXPECT_THAT(cores.Finish(7), ElementsAre(1));
  EXPECT_FALSE(cores.NextEnd().has_value());
}

TEST(SharedCores, DivideTheCoresAmongThreads) {
  SharedCores cores(2);
  cores.Begin(0, 0, 3, 2);  // alone until 1
  cores.Begin(1, 1, 3, 2);  // both at half speed: 0 needs 4 s for its 2
  EXPECT_DOUBLE_EQ(*cores.NextEnd(), 5);
  EXPECT_THAT(cores.Finish(5), ElementsAre(0));
  EXPECT_DOUBLE_EQ(*cores.NextEnd(), 6) << "1 has done 2 of 3 and is alone";
  EXPECT_THAT(cores.Finish(6), ElementsAre(1));
}

TEST(SharedCores, EqualWorkEndsTogether) {
  SharedCores cores(1);
  for (size_t device = 0; device < 3; ++device) cores.Begin(device, 0, 0.1, 1);
  EXPECT_NEAR(*cores.NextEnd(), 0.3, 1e-12);
  EXPECT_THAT(cores.Finish(*cores.NextEnd()), ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace meshwright::planner
