#include "base/ids.h"

#include <gtest/gtest.h>

#include <sstream>
#include <type_traits>
#include <unordered_set>
#include <vector>

#include "base/id_vector.h"

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

static_assert(!std::is_invocable_v<decltype([](auto& v, auto i) -> decltype(v[i]) { return v[i]; }),
                                   IdVector<SlotId, int>&, ChannelId>);

TEST(Id, IndexOfAnInvalidIdIsBeyondEveryVector) {
  EXPECT_EQ(SlotId(3).index(), 3u);
  EXPECT_GE(SlotId().index(), std::vector<int>().max_size());
}

TEST(IdVector, IsReadByIds) {
  IdVector<SlotId, int> sizes(2, 7);
  sizes[SlotId(1)] = 8;
  EXPECT_EQ(sizes.Add(9), SlotId(2));
  EXPECT_EQ(std::vector<int>(sizes.begin(), sizes.end()), (std::vector<int>{7, 8, 9}));
  EXPECT_TRUE(sizes.Has(SlotId(2)));
  EXPECT_FALSE(sizes.Has(SlotId(3)));
  EXPECT_FALSE(sizes.Has(SlotId()));
  IdVector<SlotId, bool> marks(1, false);
  marks[SlotId(0)] = true;
  EXPECT_TRUE(marks[SlotId(0)]);
}

TEST(IdVectorDeathTest, AbortsOnAnIdBeyondItsEnd) {
  const IdVector<SlotId, int> sizes(2);
  EXPECT_DEATH((void)sizes[SlotId(2)], "an id of 2 in a vector of 2");
  EXPECT_DEATH((void)sizes[SlotId()], "in a vector of 2");
}

}  // namespace
}  // namespace meshwright
