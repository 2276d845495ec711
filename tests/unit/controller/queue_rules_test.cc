// Rules of the queue and of standings, as pure functions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/philox.h"
#include "controller/backfill.h"
#include "controller/host_faults.h"
#include "controller/preemption.h"
#include "controller/standings.h"

namespace meshwright::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// ---- Backfill -----------------------------------------------------------------------------------

// When the head starts, as the number of jobs that have ended by then, with `taken` of the free
// devices given away for ever; -1: never.
int64_t StartOf(int64_t least, int64_t free, const std::vector<int64_t>& in_order) {
  for (size_t ended = 0; ended <= in_order.size(); ++ended) {
    if (free >= least) return static_cast<int64_t>(ended);
    if (ended < in_order.size()) free += in_order[ended];
  }
  return -1;
}

TEST(SpareDevices, AreThoseThatPutOffNoStartWhateverEndsFirst) {
  uint64_t draws = 0;
  const auto draw = [&](int64_t below) {
    return static_cast<int64_t>(PhiloxBits(5, 1, 0, draws++) % static_cast<uint64_t>(below));
  };
  int spares = 0;
  for (int round = 0; round < 500; ++round) {
    std::vector<int64_t> held(static_cast<size_t>(draw(5)));
    for (int64_t& size : held) size = 1 + draw(4);
    const int64_t free = draw(4);
    const int64_t least = free + 1 + draw(6);
    std::sort(held.begin(), held.end());
    int64_t most = free;  // that can be given away
    bool ever = false;
    do {
      const int64_t start = StartOf(least, free, held);
      ever = ever || start >= 0;
      while (most > 0 && StartOf(least, free - most, held) != start) --most;
    } while (std::next_permutation(held.begin(), held.end()));
    const int64_t spare = SpareDevices(least, free, held);
    if (!ever) {
      EXPECT_LT(spare, 0);
      continue;
    }
    EXPECT_EQ(std::min(spare, free), most)
        << least << " of " << free << " and " << ::testing::PrintToString(held);
    if (most > 0) ++spares;
  }
  EXPECT_GT(spares, 20);
}

TEST(SpareDevices, ByExample) {
  EXPECT_EQ(SpareDevices(2, 1, {3}), 2) << "the one that ends gives back more than is missing";
  EXPECT_EQ(SpareDevices(2, 1, {1, 1}), 0) << "the first that ends is enough, with what is free";
  EXPECT_EQ(SpareDevices(4, 1, {2}), -1);
  EXPECT_EQ(SpareDevices(1, 3, {}), 2);
}

// ---- Preemption ---------------------------------------------------------------------------------

TEST(ChooseVictims, TheLowestPriorityThenTheYoungestAndNoMoreThanNeeded) {
  const PreemptionCandidate low{JobId(1), -5, 1}, old{JobId(2), 0, 1}, young{JobId(3), 0, 1};
  EXPECT_THAT(ChooseVictims({old, young, low}, 1), ElementsAre(JobId(1)));
  EXPECT_THAT(ChooseVictims({old, young, low}, 2), ElementsAre(JobId(1), JobId(3)));
  EXPECT_THAT(ChooseVictims({old, young, low}, 4), IsEmpty()) << "for nothing";
  EXPECT_THAT(ChooseVictims({}, 1), IsEmpty());
  const PreemptionCandidate large{JobId(4), 1, 4};
  EXPECT_THAT(ChooseVictims({low, large}, 4), ElementsAre(JobId(4))) << "the small one is needless";
}

// ---- Standings ----------------------------------------------------------------------------------

TEST(Standings, FollowTheirTable) {
  using S = Standing;
  using E = StandingEvent;
  EXPECT_EQ(Next(S::kOpen, E::kCordon), S::kCordoned);
  EXPECT_EQ(Next(S::kCordoned, E::kDrain), S::kDraining);
  EXPECT_EQ(Next(S::kDraining, E::kEmptied), S::kDrained);
  EXPECT_EQ(Next(S::kDraining, E::kCordon), std::nullopt) << "it says more already";
  EXPECT_EQ(Next(S::kCordoned, E::kBlamed), std::nullopt);
  EXPECT_EQ(Next(S::kOpen, E::kEmptied), std::nullopt);
  for (const S from : {S::kCordoned, S::kDraining, S::kDrained, S::kQuarantined}) {
    EXPECT_EQ(Next(from, E::kUncordon), S::kOpen);
  }
  EXPECT_EQ(Next(S::kOpen, E::kUncordon), std::nullopt);
}

TEST(Standings, AreOfNamesAndOpenOnesAreNotKept) {
  Standings standings({{"a", Standing::kDrained, 1, 0, "x"}, {"b", Standing::kOpen, 1, 0, ""}});
  EXPECT_FALSE(standings.IsOpen("a"));
  EXPECT_TRUE(standings.IsOpen("b"));
  const auto cordoned =
      standings.Apply({"b", Standing::kOpen, 7, 0, "why"}, StandingEvent::kCordon);
  ASSERT_TRUE(cordoned.has_value());
  EXPECT_EQ(*cordoned, (StandingRecord{"b", Standing::kCordoned, 7, 0, "why"}));
  EXPECT_EQ(*standings.Of("b"), *cordoned);
  EXPECT_FALSE(standings.Apply({"b", Standing::kOpen, 8, 0, "no"}, StandingEvent::kCordon));
  ASSERT_TRUE(standings.Apply({"a", Standing::kOpen, 9, 0, "y"}, StandingEvent::kUncordon));
  EXPECT_EQ(standings.all().size(), 1u);
}

TEST(HostFaults, CountWithinTheWindowAndAreTakenBack) {
  HostFaults faults;
  EXPECT_EQ(faults.Note("w", JobId(1), 0, 100), 1);
  EXPECT_EQ(faults.Note("w", JobId(2), 99, 100), 2);
  EXPECT_EQ(faults.Note("w", JobId(2), 100, 100), 2) << "the first one is too old";
  EXPECT_EQ(faults.Note("other", JobId(2), 100, 100), 1);
  faults.TakeBack(JobId(2));
  EXPECT_EQ(faults.Note("w", JobId(3), 100, 100), 1);
  faults.Forget("w");
  EXPECT_EQ(faults.Note("w", JobId(3), 100, 100), 1);
}

}  // namespace
}  // namespace meshwright::controller
