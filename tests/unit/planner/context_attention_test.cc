#include "planner/context_attention.h"

#include <gtest/gtest.h>

namespace meshwright::planner {
namespace {

TEST(ShareHeads, OnesThatComeOutEvenStayAsTheyAre) {
  EXPECT_EQ(ShareHeads({8, 8}, 4), (SharedHeads{1, {8, 8}}));
  EXPECT_EQ(ShareHeads({16, 4}, 4), (SharedHeads{1, {16, 4}}));
}

TEST(ShareHeads, FewHeadsOfKeysAreRepeatedAsOftenAsNeeded) {
  EXPECT_EQ(ShareHeads({16, 4}, 8), (SharedHeads{2, {16, 8}}));
  EXPECT_EQ(ShareHeads({16, 1}, 8), (SharedHeads{8, {16, 8}}));
  EXPECT_EQ(ShareHeads({12, 3}, 4), (SharedHeads{4, {12, 12}}));
}

TEST(ShareHeads, HeadsOfZerosAreAddedWhereTheLeastWorkNeedsThem) {
  EXPECT_EQ(ShareHeads({3, 3}, 2), (SharedHeads{1, {4, 4}}));
  EXPECT_EQ(ShareHeads({7, 7}, 4), (SharedHeads{1, {8, 8}}));
  // Four heads of keys of three query heads each would be twelve; of one each it is eight.
  EXPECT_EQ(ShareHeads({6, 2}, 4), (SharedHeads{3, {8, 8}}));
}

TEST(ShareHeads, MoreDevicesThanHeadsShareNone) {
  EXPECT_EQ(ShareHeads({4, 2}, 5), std::nullopt);
  EXPECT_TRUE(ShareHeads({4, 2}, 4).has_value());
}

TEST(Neighbours, AreTheMostThatLeaveARing) {
  EXPECT_EQ(Neighbours({8, 8}, 4), 2);
  EXPECT_EQ(Neighbours({8, 8}, 16), 8);
  EXPECT_EQ(Neighbours({8, 2}, 16), 2);
  EXPECT_EQ(Neighbours({8, 8}, 3), 1);
  EXPECT_EQ(Neighbours({9, 9}, 8), 1);
}

TEST(RingSteps, EndBehindTheLastBlockThatAWindowReaches) {
  EXPECT_EQ(RingSteps(0, 4, 8), 7);
  EXPECT_EQ(RingSteps(1, 4, 8), 0);
  EXPECT_EQ(RingSteps(2, 4, 8), 1);
  EXPECT_EQ(RingSteps(5, 4, 8), 1);
  EXPECT_EQ(RingSteps(6, 4, 8), 2);
  EXPECT_EQ(RingSteps(1000, 4, 8), 7);
}

TEST(ElementsMoved, FollowTheClosedForms) {
  const Heads alike{8, 8};
  const Ring four{4, 3};
  EXPECT_DOUBLE_EQ(ElementsMoved(ContextAttention::kGather, alike, four), 4 * 3 * 8);
  EXPECT_DOUBLE_EQ(ElementsMoved(ContextAttention::kRing, alike, four),
                   (2 * 3 + 2 * 3 + 2 * 4) * 8);
  EXPECT_DOUBLE_EQ(ElementsMoved(ContextAttention::kUlysses, alike, four), 8 * 8 * 3.0 / 4);
  // A window that ends in the block before.
  EXPECT_DOUBLE_EQ(ElementsMoved(ContextAttention::kRing, alike, {4, 1}), (2 + 2 + 4) * 8);
  EXPECT_DOUBLE_EQ(ElementsMoved(ContextAttention::kRing, alike, {4, 0}), 0);
  // Grouped heads cost a gather less; shared heads move the queries all the same.
  const Heads grouped{32, 2};
  EXPECT_LT(ElementsMoved(ContextAttention::kGather, grouped, four),
            ElementsMoved(ContextAttention::kUlysses, grouped, four));
}

}  // namespace
}  // namespace meshwright::planner
