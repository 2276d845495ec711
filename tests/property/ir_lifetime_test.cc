// Placing by the tree of taken offsets gives the offsets of first fit as it is defined.
#include "ir/lifetime.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <vector>

#include "tests/property/first_fit.h"

namespace meshwright::ir::testing {
namespace {

void CheckPlacement(const std::vector<Lifetime>& lives) {
  const Placement placement = PlaceLifetimes(lives);
  const Placement wanted = FirstFit(lives);
  RC_ASSERT(placement.bytes == wanted.bytes);
  RC_ASSERT(placement.offset_bytes == wanted.offset_bytes);
  RC_ASSERT(MostLiveBytes(lives) <= placement.bytes);
}

std::vector<Lifetime> RandomLives(int count, int instants, int longest, int sizes) {
  std::vector<Lifetime> lives;
  for (int i = 0; i < count; ++i) {
    Lifetime life;
    life.bytes = 40 * *rc::gen::inRange(0, sizes);
    life.first = *rc::gen::inRange(0, instants);
    life.last = life.first + *rc::gen::inRange(0, longest);
    lives.push_back(life);
  }
  return lives;
}

TEST(LifetimeProperty, ShortLivesOfFewSizes) {
  EXPECT_TRUE(rc::check([] { CheckPlacement(RandomLives(*rc::gen::inRange(0, 120), 60, 8, 5)); }));
}

TEST(LifetimeProperty, LongLivesOfManySizes) {
  EXPECT_TRUE(rc::check([] { CheckPlacement(RandomLives(*rc::gen::inRange(0, 80), 30, 30, 90)); }));
}

// A pipeline's microbatches: each leaves its values to a backward that comes later.
TEST(LifetimeProperty, LivesOfPipelines) {
  EXPECT_TRUE(rc::check([] {
    const int in_flight = *rc::gen::inRange(1, 9);
    const int values = *rc::gen::inRange(1, 12);
    std::vector<Lifetime> lives;
    for (int microbatch = 0; microbatch < 24; ++microbatch) {
      for (int value = 0; value < values; ++value) {
        const int first = 20 * microbatch + value;
        lives.push_back({64 * *rc::gen::inRange(1, 20), first, first + 20 * in_flight - value});
        lives.push_back({64 * *rc::gen::inRange(1, 40), first, first + 1});
      }
    }
    CheckPlacement(lives);
  }));
}

TEST(MostLiveBytes, IsTheFullestInstant) {
  EXPECT_EQ(MostLiveBytes({}), 0);
  EXPECT_EQ(MostLiveBytes({{100, 0, 1}, {10, 1, 2}, {300, 2, 2}}), 64 + 320);
  EXPECT_EQ(MostLiveBytes({{64, 0, 0}, {64, 1, 1}}), 64) << "ends are inclusive, and ends";
}

}  // namespace
}  // namespace meshwright::ir::testing
