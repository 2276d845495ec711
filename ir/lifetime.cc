#include "ir/lifetime.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <memory_resource>
#include <queue>
#include <utility>

#include "base/check.h"

namespace meshwright::ir {
namespace {

int64_t AlignUp(int64_t bytes) {
  MW_CHECK(bytes >= 0) << bytes << " bytes";
  return (bytes + kSlotAlignmentBytes - 1) / kSlotAlignmentBytes * kSlotAlignmentBytes;
}

// [begin, end) of offsets.
struct Run {
  int64_t begin = 0;
  int64_t end = 0;
};

// A union of offsets as runs that neither overlap nor touch, by increasing offset.
using Runs = std::pmr::vector<Run>;

void Add(Run run, Runs& runs) {
  MW_CHECK(run.begin < run.end) << "a run of no bytes at " << run.begin;
  const auto first = std::lower_bound(runs.begin(), runs.end(), run.begin,
                                      [](const Run& a, int64_t begin) { return a.end < begin; });
  if (first == runs.end() || first->begin > run.end) {
    runs.insert(first, run);
    return;
  }
  auto behind = first;
  for (; behind != runs.end() && behind->begin <= run.end; ++behind) {
    run.begin = std::min(run.begin, behind->begin);
    run.end = std::max(run.end, behind->end);
  }
  *first = run;
  runs.erase(first + 1, behind);
}

// Offsets that are taken, over the instants [0, count): a segment tree. Node i has the children
// 2 i and 2 i + 1, the leaves are nodes [count, 2 count).
class TakenOffsets {
 public:
  explicit TakenOffsets(size_t count)
      : count_(count), through_(2 * count, &memory_), within_(2 * count, &memory_) {}

  // The lowest offset from which `bytes` are free at all of [first, last].
  int64_t LowestFree(size_t first, size_t last, int64_t bytes) {
    MW_CHECK(first <= last && last < count_)
        << "instants " << first << " to " << last << " of " << count_;
    readers_.clear();
    begins_.clear();
    ForCover(first, last, [&](size_t node) { Read(within_[node]); });
    ForAbove(first, last, [&](size_t node) { Read(through_[node]); });
    int64_t offset = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t i = 0; i < begins_.size(); ++i) {
        if (begins_[i] >= offset + bytes) continue;
        Reader& reader = readers_[i];
        while (reader.next != reader.end && reader.next->end <= offset) ++reader.next;
        while (reader.next != reader.end && reader.next->begin < offset + bytes) {
          offset = reader.next->end;
          ++reader.next;
          moved = true;
        }
        begins_[i] = reader.next == reader.end ? kNoRun : reader.next->begin;
      }
    }
    return offset;
  }

  void Take(size_t first, size_t last, Run run) {
    ForCover(first, last, [&](size_t node) {
      Add(run, through_[node]);
      Add(run, within_[node]);
    });
    ForAbove(first, last, [&](size_t node) { Add(run, within_[node]); });
  }

 private:
  static constexpr int64_t kNoRun = std::numeric_limits<int64_t>::max();

  struct Reader {
    const Run* next = nullptr;
    const Run* end = nullptr;
  };

  void Read(const Runs& runs) {
    if (runs.empty()) return;
    readers_.push_back({runs.data(), runs.data() + runs.size()});
    begins_.push_back(runs[0].begin);
  }

  // Nodes that together have just the instants [first, last] below them.
  template <typename Visit>
  void ForCover(size_t first, size_t last, const Visit& visit) const {
    for (size_t a = first + count_, b = last + count_ + 1; a < b; a /= 2, b /= 2) {
      if (a % 2 == 1) visit(a++);
      if (b % 2 == 1) visit(--b);
    }
  }

  // All that are above a node of the cover, each once. Some that are below one are visited, too:
  // they repeat what it says.
  template <typename Visit>
  void ForAbove(size_t first, size_t last, const Visit& visit) const {
    size_t a = (first + count_) / 2;
    size_t b = (last + count_) / 2;
    while (a != b) {
      size_t& lower = a > b ? a : b;
      visit(lower);
      lower /= 2;
    }
    for (; a > 0; a /= 2) visit(a);
  }

  const size_t count_;
  std::pmr::monotonic_buffer_resource memory_;  // nodes are many, and end together
  std::pmr::vector<Runs> through_;  // by node: what is stored there, it lives at all its instants
  std::pmr::vector<Runs> within_;   // that, and what is stored below
  std::vector<Reader> readers_;     // of the search that runs
  std::vector<int64_t> begins_;     // where the next run of each begins
};

// Instants at which something begins, by time: of two that meet, one lives when the other begins.
std::vector<int> Instants(const std::vector<Lifetime>& lifetimes) {
  std::vector<int> instants;
  for (const Lifetime& life : lifetimes) instants.push_back(life.first);
  std::sort(instants.begin(), instants.end());
  instants.erase(std::unique(instants.begin(), instants.end()), instants.end());
  return instants;
}

using Before = bool (*)(const Lifetime&, const Lifetime&);

bool IsLarger(const Lifetime& a, const Lifetime& b) {
  return a.bytes != b.bytes ? a.bytes > b.bytes : a.first < b.first;
}

bool BeginsEarlier(const Lifetime& a, const Lifetime& b) {
  return a.first != b.first ? a.first < b.first : a.bytes > b.bytes;
}

bool HasMoreArea(const Lifetime& a, const Lifetime& b) {
  const auto area = [](const Lifetime& life) {
    return static_cast<double>(life.bytes) * (1.0 + life.last - life.first);
  };
  return area(a) > area(b);
}

std::vector<size_t> Ordered(const std::vector<Lifetime>& lifetimes, Before before) {
  std::vector<size_t> order;
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    const Lifetime& life = lifetimes[i];
    MW_CHECK(life.first <= life.last) << "a lifetime from " << life.first << " to " << life.last;
    if (life.bytes > 0) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return before(lifetimes[a], lifetimes[b]); });
  return order;
}

Placement PlaceInOrder(const std::vector<Lifetime>& lifetimes, const std::vector<int>& instants,
                       Before before) {
  Placement placement;
  placement.offset_bytes.assign(lifetimes.size(), 0);
  // Of the last that is not after `instant`.
  const auto index_of = [&](int instant) {
    const auto behind = std::upper_bound(instants.begin(), instants.end(), instant);
    return static_cast<size_t>(behind - instants.begin()) - 1;
  };
  TakenOffsets taken(instants.size());
  for (const size_t i : Ordered(lifetimes, before)) {
    const Lifetime& life = lifetimes[i];
    const size_t first = index_of(life.first);
    const size_t last = index_of(life.last);
    const int64_t offset = taken.LowestFree(first, last, life.bytes);
    const Run run = {offset, AlignUp(offset + life.bytes)};
    taken.Take(first, last, run);
    placement.offset_bytes[i] = offset;
    placement.bytes = std::max(placement.bytes, run.end);
  }
  return placement;
}

// Free offsets at an instant that only moves on: gaps that neither overlap nor touch.
class Gaps {
 public:
  int64_t TakeLowest(int64_t bytes) {
    const auto gap = std::find_if(end_of_.begin(), end_of_.end(), [bytes](const auto& at) {
      return at.second - at.first >= bytes;
    });
    const auto [begin, end] = *gap;
    end_of_.erase(gap);
    if (begin + bytes < end) end_of_.emplace(begin + bytes, end);
    return begin;
  }

  void Give(int64_t begin, int64_t end) {
    auto above = end_of_.lower_bound(begin);
    if (above != end_of_.end() && above->first == end) {
      end = above->second;
      above = end_of_.erase(above);
    }
    if (above != end_of_.begin() && std::prev(above)->second == begin) {
      std::prev(above)->second = end;
    } else {
      end_of_.emplace(begin, end);
    }
  }

 private:
  std::map<int64_t, int64_t> end_of_ = {{0, std::numeric_limits<int64_t>::max()}};  // by begin
};

// What is placed before and lives with the next one lives when that begins: no tree is needed.
Placement PlaceByBeginning(const std::vector<Lifetime>& lifetimes) {
  Placement placement;
  placement.offset_bytes.assign(lifetimes.size(), 0);
  using Ending = std::pair<int, size_t>;  // last instant, lifetime
  std::priority_queue<Ending, std::vector<Ending>, std::greater<>> live;
  Gaps gaps;
  for (const size_t i : Ordered(lifetimes, BeginsEarlier)) {
    const Lifetime& life = lifetimes[i];
    for (; !live.empty() && live.top().first < life.first; live.pop()) {
      const size_t ended = live.top().second;
      const int64_t begin = placement.offset_bytes[ended];
      gaps.Give(begin, begin + AlignUp(lifetimes[ended].bytes));
    }
    const int64_t offset = gaps.TakeLowest(AlignUp(life.bytes));
    placement.offset_bytes[i] = offset;
    placement.bytes = std::max(placement.bytes, offset + AlignUp(life.bytes));
    live.emplace(life.last, i);
  }
  return placement;
}

}  // namespace

Placement PlaceLifetimes(const std::vector<Lifetime>& lifetimes) {
  constexpr size_t kMany = 1000;  // a tree takes longer than what it may save is worth
  const int64_t least_bytes = MostLiveBytes(lifetimes);
  const int64_t enough_bytes = least_bytes + (lifetimes.size() < kMany ? 0 : least_bytes / 100);
  Placement best = PlaceByBeginning(lifetimes);
  const std::vector<int> instants = Instants(lifetimes);
  for (const Before before : {IsLarger, HasMoreArea}) {
    if (best.bytes <= enough_bytes) break;
    Placement placement = PlaceInOrder(lifetimes, instants, before);
    if (placement.bytes < best.bytes) best = std::move(placement);
  }
  return best;
}

int64_t MostLiveBytes(const std::vector<Lifetime>& lifetimes) {
  std::vector<std::pair<int, int64_t>> changes;
  for (const Lifetime& life : lifetimes) {
    if (life.bytes <= 0) continue;
    MW_CHECK(life.first <= life.last) << "a lifetime from " << life.first << " to " << life.last;
    changes.emplace_back(life.first, AlignUp(life.bytes));
    changes.emplace_back(life.last + 1, -AlignUp(life.bytes));
  }
  std::sort(changes.begin(), changes.end());  // at one instant ends come before beginnings
  int64_t live_bytes = 0;
  int64_t most_bytes = 0;
  for (const auto& [instant, bytes] : changes) {
    live_bytes += bytes;
    most_bytes = std::max(most_bytes, live_bytes);
  }
  MW_CHECK(live_bytes == 0) << live_bytes << " bytes are never given back";
  return most_bytes;
}

}  // namespace meshwright::ir
