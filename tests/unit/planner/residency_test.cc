// Belady's rule against every way to keep items, on small lists of uses.
#include "planner/residency.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>

namespace meshwright::planner {
namespace {

using Uses = std::vector<std::vector<size_t>>;

int64_t Misses(const Uses& uses, size_t items, int64_t capacity) {
  return PlanResidency(uses, std::vector<int64_t>(items, 1), capacity).fetched_bytes;
}

// The fewest fetches by trying everything: what is kept behind each turn is any part of what is
// there, with room for the items of two turns running.
int64_t Fewest(const Uses& uses, size_t turn, const std::set<size_t>& there, size_t capacity) {
  if (turn == uses.size()) return 0;
  const std::set<size_t> needed(uses[turn].begin(), uses[turn].end());
  std::set<size_t> pinned = needed;
  if (turn > 0) pinned.insert(uses[turn - 1].begin(), uses[turn - 1].end());
  int64_t misses = 0;
  for (const size_t item : needed) misses += there.contains(item) ? 0 : 1;
  std::vector<size_t> others;
  for (const size_t item : there) {
    if (!pinned.contains(item)) others.push_back(item);
  }
  int64_t fewest = std::numeric_limits<int64_t>::max();
  for (size_t kept = 0; kept < (size_t{1} << others.size()); ++kept) {
    std::set<size_t> next = needed;
    for (const size_t item : there) {
      if (pinned.contains(item)) next.insert(item);
    }
    for (size_t i = 0; i < others.size(); ++i) {
      if ((kept >> i) & 1) next.insert(others[i]);
    }
    if (next.size() > std::max(capacity, pinned.size())) continue;
    fewest = std::min(fewest, Fewest(uses, turn + 1, next, capacity));
  }
  return misses + fewest;
}

TEST(PlanResidency, KeepsWhatIsNeededSoonest) {
  // Layers forward and back: the last one is still there when the way back begins.
  const Uses there_and_back = {{0}, {1}, {2}, {3}, {3}, {2}, {1}, {0}};
  EXPECT_EQ(Misses(there_and_back, 4, 4), 4);
  EXPECT_EQ(Misses(there_and_back, 4, 3), 5);
  EXPECT_EQ(Misses(there_and_back, 4, 2), 6);
  EXPECT_EQ(Misses(there_and_back, 4, 1), 7);
}

TEST(PlanResidency, HoldsNoMoreThanItMay) {
  const Uses uses = {{0, 1}, {2}, {0}, {3}, {1, 2}, {0}};
  const Residency residency = PlanResidency(uses, {5, 7, 3, 4}, 16);
  EXPECT_LE(residency.most_bytes, 16);
  EXPECT_EQ(residency.fetched[0], (std::vector<bool>{true, true}));
  EXPECT_EQ(residency.fetched[2], (std::vector<bool>{false}));
}

TEST(PlanResidency, NoOtherRuleFetchesLess) {
  std::mt19937_64 random(20261126);
  for (int trace = 0; trace < 300; ++trace) {
    const size_t items = 2 + random() % 4;
    const size_t turns = 3 + random() % 6;
    Uses uses(turns);
    for (auto& turn : uses) turn = {random() % items};
    for (size_t capacity = 1; capacity <= items; ++capacity) {
      EXPECT_EQ(Misses(uses, items, static_cast<int64_t>(capacity)), Fewest(uses, 0, {}, capacity))
          << "trace " << trace << " capacity " << capacity;
    }
  }
}

// Turns that items come with, of those that are copied: all that are fetched.
Uses Early(const Uses& uses, const std::vector<int64_t>& bytes, int64_t capacity) {
  const Residency residency = PlanResidency(uses, bytes, capacity);
  return FetchEarly(uses, bytes, capacity, residency, residency.fetched);
}

TEST(FetchEarly, ComesAsSoonAsThereIsRoom) {
  // Nothing to do for three turns, then an item each.
  const Uses update = {{}, {}, {}, {0}, {1}, {2}, {3}};
  const std::vector<int64_t> bytes(4, 1);
  EXPECT_EQ(Early(update, bytes, 4), (Uses{{}, {}, {}, {0}, {0}, {0}, {0}}));
  // Each has to leave before the next but one can come.
  EXPECT_EQ(Early(update, bytes, 2), (Uses{{}, {}, {}, {0}, {0}, {5}, {6}}));
  EXPECT_EQ(Early(update, bytes, 3), (Uses{{}, {}, {}, {0}, {0}, {0}, {6}}));
  EXPECT_EQ(Early(update, bytes, 1), (Uses{{}, {}, {}, {0}, {4}, {5}, {6}}));
  // What was there has left before it comes again, however much room there is.
  const Uses again = {{0}, {1}, {2}, {0}};
  const Residency residency = PlanResidency(again, {1, 1, 1}, 1);
  ASSERT_EQ(residency.fetched.back(), (std::vector<bool>{true}));
  EXPECT_EQ(FetchEarly(again, {1, 1, 1}, 100, residency, residency.fetched),
            (Uses{{0}, {0}, {0}, {3}}));
}

TEST(FetchEarly, KeepsTheOrderAndTheRoom) {
  std::mt19937_64 random(20261127);
  for (int trace = 0; trace < 300; ++trace) {
    const size_t items = 2 + random() % 5;
    std::vector<int64_t> bytes;
    for (size_t i = 0; i < items; ++i) bytes.push_back(1 + static_cast<int64_t>(random() % 3));
    Uses uses(4 + random() % 8);
    for (auto& turn : uses) {
      if (random() % 3 > 0) turn = {random() % items};
    }
    const auto capacity = static_cast<int64_t>(4 + random() % 6);
    const Residency residency = PlanResidency(uses, bytes, capacity);
    const Uses early = FetchEarly(uses, bytes, capacity, residency, residency.fetched);
    std::vector<int64_t> held = residency.held_bytes;
    size_t before = 0;
    for (size_t turn = 0; turn < uses.size(); ++turn) {
      if (uses[turn].empty() || !residency.fetched[turn][0]) continue;
      const size_t at = early[turn][0];
      EXPECT_LE(at, turn);
      EXPECT_GE(at, before) << "trace " << trace;
      before = at;
      for (size_t t = at; t < turn; ++t) held[t] += bytes[uses[turn][0]];
    }
    for (size_t turn = 0; turn < held.size(); ++turn) {
      EXPECT_LE(held[turn], std::max(capacity, residency.held_bytes[turn])) << "trace " << trace;
    }
  }
}

}  // namespace
}  // namespace meshwright::planner
