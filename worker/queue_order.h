// QueueOrder: which work of a GPU's step must wait for which, when it is spread over queues.
//
// The list of a step is right in its own order. Work in different queues may run in any order, so
// every pair that touches the same bytes, one of them writing, must be ordered by events: the
// later one's queue waits for an event that is recorded behind the earlier one. Most such waits
// follow from others (a queue that waited for an item has also waited for what that item's queue
// had waited for), so each queue keeps how far it knows the others to be, a vector clock, and waits
// only for news.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace meshwright::worker {

struct Access {
  uintptr_t begin = 0;  // of the bytes
  uintptr_t end = 0;
  bool writes = false;
};

struct QueueItem {
  int queue = 0;
  std::vector<Access> accesses;
};

struct QueueOrder {
  struct Item {
    std::vector<int> waits;  // events that the item's queue waits for before it
    int event = -1;          // recorded behind it; -1: nobody waits for it
  };
  std::vector<Item> items;
  int events = 0;
};

// Items in the order of the list. All queues are empty before the first.
QueueOrder OrderQueues(std::span<const QueueItem> items, int queues);

}  // namespace meshwright::worker
