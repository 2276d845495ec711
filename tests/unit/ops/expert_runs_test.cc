// Slots of tokens among experts: goldens of the order, of what is dropped, and of runs.
#include "ops/expert_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace meshwright::ops {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Assigned {
  Status status;
  std::vector<int32_t> slots, used, chosen;
};

Assigned Assign(const SlotRequest& request, const std::vector<int32_t>& choices) {
  const std::vector<int32_t> of_experts(static_cast<size_t>(request.experts), -7);
  Assigned assigned{{}, std::vector<int32_t>(choices.size()), of_experts, of_experts};
  assigned.status = SlotAssigner(request).Assign(choices.data(), assigned.slots.data(),
                                                 assigned.used.data(), assigned.chosen.data());
  return assigned;
}

// Four tokens, two choices each.
const std::vector<int32_t> kChoices = {0, 2, 0, 1, 0, 2, 1, 0};

TEST(SlotAssigners, RunsOfExpertsFollowEachOtherInAGroup) {
  const Assigned one = Assign({4, 2, 3, 1, 8}, kChoices);
  ASSERT_TRUE(one.status.ok()) << one.status;
  EXPECT_THAT(one.used, ElementsAre(4, 2, 2));
  EXPECT_THAT(one.slots, ElementsAre(0, 6, 1, 4, 2, 7, 5, 3));
}

TEST(SlotAssigners, GroupsHaveRoomOfTheirOwn) {
  const Assigned own = Assign({4, 2, 4, 2, 6}, kChoices);
  ASSERT_TRUE(own.status.ok()) << own.status;
  EXPECT_THAT(own.used, ElementsAre(4, 2, 2, 0));
  EXPECT_THAT(own.slots, ElementsAre(0, 6, 1, 4, 2, 7, 5, 3));
}

TEST(SlotAssigners, WhatFindsNoRoomIsDroppedInTheOrderOfTokens) {
  const Assigned full = Assign({4, 2, 3, 3, 2, /*by_choice=*/false, /*drop=*/true}, kChoices);
  ASSERT_TRUE(full.status.ok()) << full.status;
  EXPECT_THAT(full.used, ElementsAre(2, 2, 2));
  EXPECT_THAT(full.chosen, ElementsAre(4, 2, 2));
  EXPECT_THAT(full.slots, ElementsAre(0, 4, 1, 2, -1, 5, 3, -1));
}

TEST(SlotAssigners, FirstChoicesComeBeforeSecondOnes) {
  const std::vector<int32_t> choices = {1, 0, 0, 1, 0, 1};
  const SlotRequest request{3, 2, 2, 2, 2, /*by_choice=*/true, /*drop=*/true};
  EXPECT_THAT(Assign(request, choices).slots, ElementsAre(2, -1, 0, 3, 1, -1));
}

TEST(SlotAssigners, HighScoresComeFirstAndEqualOnesInTheOrderOfTokens) {
  const std::vector<int32_t> choices = {0, 1, 0, 1, 0, 1};
  const std::vector<double> scores = {0.2, 0.5, 0.7, 0.5, 0.7, 0.1};
  std::vector<int32_t> slots(6), used(2), chosen(2);
  SlotAssigner assigner({3, 2, 2, 2, 2, /*by_choice=*/false, /*drop=*/true});
  ASSERT_TRUE(
      assigner.Assign(choices.data(), slots.data(), used.data(), chosen.data(), scores.data())
          .ok());
  EXPECT_THAT(slots, ElementsAre(-1, 2, 0, 3, 1, -1));
}

TEST(SlotAssigners, RefusesWhatHasNoRoomOrNoExpert) {
  EXPECT_THAT(Assign({4, 2, 3, 3, 2}, kChoices).status.message(),
              HasSubstr("4 choices for group 0 (experts 0 to 0), which has 2 slots"));
  EXPECT_THAT(Assign({1, 2, 3, 1, 2}, {0, 3}).status.message(),
              HasSubstr("choice 1 is expert 3 of 3"));
  EXPECT_FALSE(Assign({1, 2, 3, 1, 2}, {-1, 0}).status.ok());
}

TEST(ExpertRuns, AreByExpertAndBehindEachOther) {
  const std::vector<int32_t> counts = {1, 2, 0, 3,   // of row 0
                                       0, 4, 1, 0};  // of row 1
  std::vector<ExpertRun> runs;
  ASSERT_TRUE(FindExpertRuns(counts.data(), 2, 4, 2, 4, runs).ok());
  ASSERT_EQ(runs.size(), 8u);
  const auto run = [&](int64_t expert, int64_t row) {
    const ExpertRun& each = runs[static_cast<size_t>(expert * 2 + row)];
    EXPECT_EQ(each.expert, expert);
    EXPECT_EQ(each.row, row);
    return std::pair(each.first, each.count);
  };
  EXPECT_EQ(run(0, 0), std::pair(int64_t{0}, int64_t{1}));
  EXPECT_EQ(run(1, 0), std::pair(int64_t{1}, int64_t{2}));
  EXPECT_EQ(run(3, 0), std::pair(int64_t{4}, int64_t{3}));
  EXPECT_EQ(run(1, 1), std::pair(int64_t{8}, int64_t{4}));
  EXPECT_EQ(run(2, 1), std::pair(int64_t{12}, int64_t{1}));
}

TEST(ExpertRuns, MoreThanTheSlotsAreRefused) {
  std::vector<ExpertRun> runs;
  const std::vector<int32_t> counts = {3, 2};
  EXPECT_THAT(FindExpertRuns(counts.data(), 1, 2, 1, 4, runs).message(),
              HasSubstr("expert 1 of row 0 has 2 slots behind 3 of 4"));
  const std::vector<int32_t> negative = {-1, 2};
  EXPECT_FALSE(FindExpertRuns(negative.data(), 1, 2, 1, 4, runs).ok());
}

TEST(SlotBlocks, HaveSomeOfAllGroups) {
  const SlotBlock block{.rows = 2, .groups = 2, .capacity = 3, .width = 1, .first_group = 2};
  EXPECT_EQ(block.PlaceOf(0, 5), -1) << "a group before";
  EXPECT_EQ(block.PlaceOf(0, 6), 0);
  EXPECT_EQ(block.PlaceOf(1, 10), 10);
  EXPECT_EQ(block.PlaceOf(0, 12), -1) << "a group behind";
  EXPECT_EQ(block.PlaceOf(0, -1), -1) << "dropped";
}

// Two hosts of two groups of two slots: slots 0 to 3 are on host 0.
TEST(PlacesOnHosts, ATokenHasOnePlaceOnEachHostOfItsSlots) {
  const std::vector<int32_t> slots = {0, 4, 2, 3, -1, 5, 6, 7};
  std::vector<int32_t> places(8, -7), within(16, -7), counts(2, -7);
  const HostRequest request{4, 2, 2, 4, 4};
  ASSERT_TRUE(
      PlaceOnHosts(request, slots.data(), places.data(), within.data(), counts.data()).ok());
  EXPECT_THAT(places, ElementsAre(0, 4, 1, -1, -1, 5, -1, 6));
  EXPECT_THAT(counts, ElementsAre(2, 3));
  EXPECT_THAT(within, ElementsAre(0, -1, 2, 3, -1, -1, -1, -1, -1, 0, -1, 1, 2, 3, -1, -1));
}

TEST(PlacesOnHosts, SlotsBehindTheLastAndFullHostsAreErrors) {
  std::vector<int32_t> places(4), within(4), counts(2);
  const auto place = [&](const std::vector<int32_t>& slots) {
    return PlaceOnHosts({2, 1, 2, 2, 1}, slots.data(), places.data(), within.data(), counts.data());
  };
  EXPECT_TRUE(place({0, 2}).ok());
  EXPECT_EQ(place({0, 4}).code(), StatusCode::kOutOfRange);
  EXPECT_EQ(place({0, 1}).code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace meshwright::ops
