#include "worker/queue_order.h"

#include <algorithm>
#include <map>

#include "base/check.h"

namespace meshwright::worker {
namespace {

constexpr int kNobody = -1;

// The last items that touched a range of bytes: per queue the last that wrote and that read it.
struct Touch {
  std::vector<int> wrote;
  std::vector<int> read;
};

// Non-overlapping ranges by where they begin, split where accesses begin and end.
class Ranges {
 public:
  explicit Ranges(int queues) : none_{Untouched(queues), Untouched(queues)} {}

  template <typename Visit>
  void ForEach(const Access& access, const Visit& visit) {
    if (access.begin >= access.end) return;
    SplitAt(access.begin);
    SplitAt(access.end);
    uintptr_t at = access.begin;
    auto it = ranges_.lower_bound(at);
    while (at < access.end) {
      if (it == ranges_.end() || it->first > at) {
        const uintptr_t end = it == ranges_.end() ? access.end : std::min(access.end, it->first);
        it = ranges_.emplace_hint(it, at, Range{end, none_});
      }
      visit(it->second.touch);
      at = it->second.end;
      ++it;
    }
  }

 private:
  struct Range {
    uintptr_t end = 0;
    Touch touch;
  };

  static std::vector<int> Untouched(int queues) {
    return std::vector<int>(static_cast<size_t>(queues), kNobody);
  }

  void SplitAt(uintptr_t place) {
    auto it = ranges_.upper_bound(place);
    if (it == ranges_.begin()) return;
    --it;
    if (it->first == place || it->second.end <= place) return;
    Range rest = it->second;
    MW_CHECK(it->first < place && place < rest.end) << "a range is split outside of it";
    it->second.end = place;
    ranges_.emplace(place, std::move(rest));
  }

  const Touch none_;
  std::map<uintptr_t, Range> ranges_;
};

// For one item, per queue: the last item of it that must be done before.
using VectorClock = std::vector<int>;

void Raise(VectorClock& clock, const VectorClock& other) {
  for (size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

}  // namespace

QueueOrder OrderQueues(std::span<const QueueItem> items, int queues) {
  const VectorClock nothing(static_cast<size_t>(queues), kNobody);
  Ranges ranges(queues);
  QueueOrder order;
  order.items.resize(items.size());
  std::vector<VectorClock> known(static_cast<size_t>(queues), nothing);  // by each queue
  std::vector<VectorClock> at_item(items.size(), nothing);               // what its queue knew then
  for (size_t i = 0; i < items.size(); ++i) {
    const auto queue = static_cast<size_t>(items[i].queue);
    MW_CHECK(items[i].queue >= 0 && items[i].queue < queues)
        << "queue " << items[i].queue << " of " << queues;
    VectorClock needed = nothing;
    for (const Access& access : items[i].accesses) {
      ranges.ForEach(access, [&](Touch& touch) {
        Raise(needed, touch.wrote);
        if (access.writes) Raise(needed, touch.read);
      });
    }
    // The latest first: it may bring what the others would.
    std::vector<size_t> others;
    for (size_t q = 0; q < needed.size(); ++q) {
      if (q != queue && needed[q] > known[queue][q]) others.push_back(q);
    }
    std::sort(others.begin(), others.end(),
              [&](size_t a, size_t b) { return needed[a] > needed[b]; });
    for (const size_t other : others) {
      if (needed[other] <= known[queue][other]) continue;
      const auto awaited = static_cast<size_t>(needed[other]);
      MW_CHECK(awaited < i) << "item " << i << " waits for the later item " << awaited;
      QueueOrder::Item& earlier = order.items[awaited];
      if (earlier.event == kNobody) earlier.event = order.events++;
      order.items[i].waits.push_back(earlier.event);
      Raise(known[queue], at_item[awaited]);
    }
    known[queue][queue] = static_cast<int>(i);
    at_item[i] = known[queue];
    for (const Access& access : items[i].accesses) {
      ranges.ForEach(access, [&](Touch& touch) {
        (access.writes ? touch.wrote : touch.read)[queue] = static_cast<int>(i);
      });
    }
  }
  return order;
}

}  // namespace meshwright::worker
