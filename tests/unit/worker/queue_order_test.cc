#include "worker/queue_order.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

namespace meshwright::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

QueueItem Reads(int queue, uintptr_t begin, uintptr_t end) {
  return {queue, {{begin, end, false}}};
}
QueueItem Writes(int queue, uintptr_t begin, uintptr_t end) {
  return {queue, {{begin, end, true}}};
}

TEST(QueueOrder, OneQueueNeedsNoEvents) {
  const QueueItem items[] = {Writes(0, 0, 8), Reads(0, 0, 8), Writes(0, 4, 6)};
  EXPECT_EQ(OrderQueues(items, 1).events, 0);
}

TEST(QueueOrder, AReaderWaitsForTheWriterOfAnotherQueue) {
  const QueueItem items[] = {Writes(0, 0, 8), Reads(1, 7, 9)};
  const QueueOrder order = OrderQueues(items, 2);
  EXPECT_EQ(order.items[0].event, 0);
  EXPECT_THAT(order.items[1].waits, ElementsAre(0));
}

TEST(QueueOrder, AWriterWaitsForReadersAndWriters) {
  const QueueItem items[] = {Reads(0, 0, 8), Writes(1, 0, 4), Writes(0, 3, 5)};
  const QueueOrder order = OrderQueues(items, 2);
  EXPECT_THAT(order.items[1].waits, ElementsAre(0));
  EXPECT_THAT(order.items[2].waits, ElementsAre(1));
}

TEST(QueueOrder, ReadersAndNeighboursDoNotWait) {
  const QueueItem items[] = {Reads(0, 0, 8), Reads(1, 0, 8), Writes(0, 8, 9), Writes(1, 9, 10)};
  EXPECT_EQ(OrderQueues(items, 2).events, 0);
}

// The second wait of queue 1 follows from the first; so does that of queue 2 through queue 1.
TEST(QueueOrder, WhatFollowsFromOtherWaitsIsNotWaitedFor) {
  const QueueItem items[] = {Writes(0, 0, 1), Writes(0, 1, 2), Reads(1, 1, 2), Reads(1, 0, 1),
                             Writes(1, 5, 6), Reads(2, 5, 6),  Reads(2, 0, 2)};
  const QueueOrder order = OrderQueues(items, 3);
  EXPECT_THAT(order.items[2].waits, ElementsAre(0));
  EXPECT_THAT(order.items[3].waits, IsEmpty());
  EXPECT_THAT(order.items[5].waits, ElementsAre(1));
  EXPECT_THAT(order.items[6].waits, IsEmpty());
  EXPECT_EQ(order.events, 2);
}

bool Conflict(const QueueItem& a, const QueueItem& b) {
  for (const Access& x : a.accesses) {
    for (const Access& y : b.accesses) {
      const bool overlap = std::max(x.begin, y.begin) < std::min(x.end, y.end);
      if ((x.writes || y.writes) && overlap) return true;
    }
  }
  return false;
}

// before[i][j]: i is done before j starts, by queues and events alone.
std::vector<std::vector<bool>> Before(const std::vector<QueueItem>& items,
                                      const QueueOrder& order) {
  const size_t n = items.size();
  std::vector<std::vector<bool>> before(n, std::vector<bool>(n, false));
  for (size_t j = 0; j < n; ++j) {
    for (size_t i = 0; i < j; ++i) {
      const auto& waits = order.items[j].waits;
      const bool same = items[i].queue == items[j].queue;
      const bool event = order.items[i].event >= 0 &&
                         std::find(waits.begin(), waits.end(), order.items[i].event) != waits.end();
      if (!same && !event) continue;
      before[i][j] = true;
      for (size_t h = 0; h < i; ++h) {
        if (before[h][i]) before[h][j] = true;
      }
    }
  }
  return before;
}

RC_GTEST_PROP(QueueOrderProperty, ConflictsAreOrderedAndNoWaitIsIdle, ()) {
  const int queues = *rc::gen::inRange(1, 4);
  const auto count = *rc::gen::inRange<size_t>(0, 30);
  std::vector<QueueItem> items;
  for (size_t i = 0; i < count; ++i) {
    QueueItem item{*rc::gen::inRange(0, queues), {}};
    const int accesses = *rc::gen::inRange(1, 4);
    for (int a = 0; a < accesses; ++a) {
      const auto begin = *rc::gen::inRange<uintptr_t>(0, 20);
      item.accesses.push_back(
          {begin, begin + *rc::gen::inRange<uintptr_t>(0, 6), *rc::gen::arbitrary<bool>()});
    }
    items.push_back(item);
  }
  const QueueOrder order = OrderQueues(items, queues);
  const auto before = Before(items, order);
  for (size_t j = 0; j < count; ++j) {
    for (size_t i = 0; i < j; ++i) {
      if (Conflict(items[i], items[j])) RC_ASSERT(before[i][j]);
    }
  }
  // Every wait orders a pair that would be free without it.
  for (size_t j = 0; j < count; ++j) {
    for (size_t w = 0; w < order.items[j].waits.size(); ++w) {
      QueueOrder less = order;
      less.items[j].waits.erase(less.items[j].waits.begin() + static_cast<std::ptrdiff_t>(w));
      const auto without = Before(items, less);
      bool needed = false;
      for (size_t i = 0; i < j; ++i) {
        needed = needed || (Conflict(items[i], items[j]) && !without[i][j]);
      }
      RC_ASSERT(needed);
    }
  }
}

}  // namespace
}  // namespace meshwright::worker
