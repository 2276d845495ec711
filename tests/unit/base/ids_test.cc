#include "base/ids.h"

#include <gtest/gtest.h>

#include <sstream>
#include <type_traits>
#include <unordered_set>

namespace meshwright {
namespace {

static_assert(!std::is_convertible_v<int, SlotId>);
static_assert(!std::is_convertible_v<SlotId, int>);
static_assert(!std::is_constructible_v<SlotId, ChannelId>);
static_assert(sizeof(SlotId) == sizeof(int32_t) && sizeof(Term) == sizeof(uint64_t));

TEST(Id, DefaultIsNotValid) {
  EXPECT_FALSE(SlotId().valid());
  EXPECT_FALSE(Term().valid());
  EXPECT_TRUE(SlotId(0).valid());
}

TEST(Id, ComparesHashesAndPrintsLikeItsNumber) {
  EXPECT_EQ(SlotId(3), SlotId(3));
  EXPECT_LT(SlotId(3), SlotId(4));
  const std::unordered_set<SlotId> set = {SlotId(1), SlotId(2), SlotId(1)};
  EXPECT_EQ(set.size(), 2u);
  std::ostringstream out;
  out << (Id<struct AnyTag, int64_t>(42));
  EXPECT_EQ(out.str(), "42");
}

}  // namespace
}  // namespace meshwright
