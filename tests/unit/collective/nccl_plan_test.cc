// What is computed before and between calls of NCCL: states, invitations, the plan of splits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "collective/nccl/comm_state.h"
#include "collective/nccl/invitation.h"
#include "collective/nccl/split_plan.h"

namespace meshwright::collective::nccl {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CommState, EveryStateWithACommunicatorCanBeAborted) {
  for (const State state : {State::kInitialising, State::kReady, State::kFailed, State::kClosing}) {
    EXPECT_EQ(Next(state, Event::kAbort), State::kAborted) << StateName(state);
  }
  EXPECT_EQ(Next(State::kAborted, Event::kDestroy), State::kDestroyed);
}

TEST(CommState, NothingLeavesDestroyedAndNothingFailedIsReady) {
  std::set<std::pair<State, Event>> seen;
  for (const Transition& transition : Transitions()) {
    EXPECT_NE(transition.from, State::kDestroyed);
    EXPECT_TRUE(seen.emplace(transition.from, transition.event).second) << "two ways";
    if (transition.to == State::kReady) {
      EXPECT_EQ(transition.from, State::kInitialising);
    }
  }
  EXPECT_FALSE(Next(State::kCreated, Event::kFinalize).has_value());
  EXPECT_FALSE(Next(State::kFailed, Event::kFinalize).has_value());
}

Invitation InvitationOf(const std::string& worker, std::vector<int> ranks) {
  Invitation invitation;
  invitation.worker = worker;
  invitation.ranks = std::move(ranks);
  invitation.generation = 7;
  invitation.nccl = 22809;
  invitation.driver = 13000;
  invitation.runtime = 13000;
  if (invitation.ranks.front() == 0) {
    UniqueId& id = invitation.ids.emplace_back();
    for (int i = 0; i < kUniqueIdBytes; ++i) id.bytes[i] = static_cast<char>(i * 3);
  }
  return invitation;
}

TEST(Invitation, SurvivesItsText) {
  const Invitation invitation = InvitationOf("worker 0", {0, 2});
  const auto parsed = ParseInvitation(FormatInvitation(invitation));
  ASSERT_TRUE(parsed.has_value()) << parsed.error();
  EXPECT_EQ(parsed->worker, "worker_0");
  EXPECT_THAT(parsed->ranks, ElementsAre(0, 2));
  EXPECT_EQ(parsed->generation, 7);
  EXPECT_EQ(parsed->nccl, 22809);
  ASSERT_EQ(parsed->ids.size(), 1u);
  EXPECT_EQ(std::string(parsed->ids[0].bytes, kUniqueIdBytes),
            std::string(invitation.ids[0].bytes, kUniqueIdBytes));
  EXPECT_TRUE(ParseInvitation(FormatInvitation(InvitationOf("w", {1}))).has_value());
}

TEST(Invitation, RefusesOtherText) {
  const std::string good = FormatInvitation(InvitationOf("w", {0}));
  for (const std::string& text : {std::string(), std::string("hello"),
                                  good.substr(0, good.size() - 1), "x" + good, good + "zz"}) {
    EXPECT_FALSE(ParseInvitation(text).has_value()) << text;
  }
}

TEST(Invitation, VersionsThatDifferNameBothWorkers) {
  std::vector<Invitation> all = {InvitationOf("a", {0}), InvitationOf("b", {1})};
  EXPECT_TRUE(CheckInvitations(all, 2).has_value());
  all[1].nccl = 22703;
  const auto nccl = CheckInvitations(all, 2);
  ASSERT_FALSE(nccl.has_value());
  EXPECT_EQ(nccl.error().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(nccl.error().message(), HasSubstr("a has NCCL 2.28.9, b has 2.27.3"));
  all[1].nccl = all[0].nccl;
  all[1].driver = 12040;
  const auto driver = CheckInvitations(all, 2);
  ASSERT_FALSE(driver.has_value());
  EXPECT_THAT(driver.error().message(), AllOf(HasSubstr("13.0"), HasSubstr("b has 12.4")));
}

TEST(Invitation, EveryRankComesOnce) {
  const auto missing = CheckInvitations({InvitationOf("a", {0})}, 3);
  ASSERT_FALSE(missing.has_value());
  EXPECT_THAT(missing.error().message(), HasSubstr("no invitation came from ranks 1,2"));
  const auto twice = CheckInvitations({InvitationOf("a", {0}), InvitationOf("b", {0})}, 1);
  ASSERT_FALSE(twice.has_value());
  EXPECT_THAT(twice.error().message(), HasSubstr("b: rank 0"));
}

TEST(Invitation, LargeMeshesStartWithAnIdPer64Ranks) {
  EXPECT_EQ(IdCount(1), 1);
  EXPECT_EQ(IdCount(128), 1);
  EXPECT_EQ(IdCount(129), 3);
  EXPECT_EQ(IdCount(256), 4);
}

Link GroupLink(const std::string& name, std::vector<int> ranks) {
  return {Link::Kind::kGroup, name, std::move(ranks), 0, 0};
}
Link ChannelLink(const std::string& name, int from, int to) {
  return {Link::Kind::kChannel, name, {from, to}, 2, 64};
}
std::string Name(int rank) { return "rank " + std::to_string(rank); }

TEST(SplitPlan, DeclarationsSurviveTheirBytes) {
  const std::vector<Link> links = {GroupLink("stage0/tensor/0", {3, 1, 2}),
                                   ChannelLink("c\n", 0, 1)};
  const std::string bytes = EncodeLinks(links);
  EXPECT_EQ(DecodeLinks(bytes).value(), links);
  for (size_t size = 1; size < bytes.size(); ++size) {
    const auto broken = DecodeLinks(std::string_view(bytes).substr(0, size));
    EXPECT_TRUE(!broken.has_value() || broken->size() < links.size());
  }
}

TEST(SplitPlan, ProcessesThatMadeDifferentThingsAreNamed) {
  std::vector<Declaration> all = {{{0}, {GroupLink("g", {0, 1})}}, {{1}, {GroupLink("g", {1, 0})}}};
  const auto different = MergeLinks(all, Name);
  ASSERT_FALSE(different.has_value());
  EXPECT_EQ(different.error().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(different.error().message(),
              AllOf(HasSubstr("ranks 0,1 on rank 0"), HasSubstr("ranks 1,0 on rank 1")));
  all[1].links.clear();
  const auto missing = MergeLinks(all, Name);
  ASSERT_FALSE(missing.has_value());
  EXPECT_THAT(missing.error().message(), HasSubstr("was made by rank 0, not by rank 1"));
}

TEST(SplitPlan, DisjointGroupsTakeOneSplit) {
  // A 2x2 mesh: rows and columns.
  const std::vector<Link> links = {GroupLink("a", {0, 1}), GroupLink("b", {2, 3}),
                                   GroupLink("c", {0, 2}), GroupLink("d", {1, 3})};
  std::set<std::vector<int>> known;
  const SplitPlan plan = PlanSplits(links, &known);
  ASSERT_EQ(plan.groups.size(), 2u);
  EXPECT_EQ(plan.groups[0].ColorOf(1), 0);
  EXPECT_EQ(plan.groups[0].ColorOf(3), 1);
  EXPECT_EQ(plan.groups[0].KeyOf(3), 1);
  EXPECT_EQ(plan.groups[1].ColorOf(2), 0);
  EXPECT_EQ(plan.groups[1].ColorOf(4), -1);
}

TEST(SplitPlan, GroupsOfTheSameRanksShareAndChannelsDoNot) {
  std::set<std::vector<int>> known = {{0, 1}};
  const SplitPlan plan = PlanSplits(
      {GroupLink("a", {0, 1}), GroupLink("b", {1, 0}), GroupLink("c", {1, 0}), GroupLink("d", {0}),
       ChannelLink("x", 0, 1), ChannelLink("y", 0, 1), ChannelLink("z", 2, 3)},
      &known);
  ASSERT_EQ(plan.groups.size(), 1u);  // 0,1 is known; 1,0 once; none for one rank
  EXPECT_THAT(plan.groups[0].parts[0].ranks, ElementsAre(1, 0));
  ASSERT_EQ(plan.channels.size(), 2u);
  EXPECT_EQ(plan.channels[0].parts.size(), 2u);  // x and z
  EXPECT_EQ(PlanSplits({GroupLink("e", {1, 0})}, &known).groups.size(), 0u);
}

}  // namespace
}  // namespace meshwright::collective::nccl
