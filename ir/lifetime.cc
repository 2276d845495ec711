#include "ir/lifetime.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace meshwright::ir {
namespace {

int64_t AlignUp(int64_t bytes) {
  return (bytes + kSlotAlignmentBytes - 1) / kSlotAlignmentBytes * kSlotAlignmentBytes;
}

// [begin, end) of offsets.
struct Run {
  int64_t begin = 0;
  int64_t end = 0;
};

// A union of offsets as runs that neither overlap nor touch, by increasing offset.
class Runs {
 public:
  void Add(Run run) {
    const auto first = std::lower_bound(runs_.begin(), runs_.end(), run.begin,
                                        [](const Run& a, int64_t begin) { return a.end < begin; });
    if (first == runs_.end() || first->begin > run.end) {
      runs_.insert(first, run);
      return;
    }
    auto behind = first;
    for (; behind != runs_.end() && behind->begin <= run.end; ++behind) {
      run.begin = std::min(run.begin, behind->begin);
      run.end = std::max(run.end, behind->end);
    }
    *first = run;
    runs_.erase(first + 1, behind);
  }

  const std::vector<Run>& all() const { return runs_; }

 private:
  std::vector<Run> runs_;
};

// Offsets that are taken, over the instants [0, count).
class TakenOffsets {
 public:
  explicit TakenOffsets(int count) : count_(count), nodes_(4 * static_cast<size_t>(count)) {}

  // The lowest offset from which `bytes` are free at all of [first, last].
  int64_t LowestFree(int first, int last, int64_t bytes) {
    readers_.clear();
    Collect({0, 0, count_ - 1}, first, last);
    int64_t offset = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (Reader& reader : readers_) {
        while (reader.next != reader.end && reader.next->end <= offset) ++reader.next;
        while (reader.next != reader.end && reader.next->begin < offset + bytes) {
          offset = reader.next->end;
          ++reader.next;
          moved = true;
        }
      }
    }
    return offset;
  }

  void Take(int first, int last, Run run) { Take({0, 0, count_ - 1}, first, last, run); }

 private:
  struct Node {
    Runs through;  // what is stored here: it lives at all instants of the node
    Runs within;   // that, and what is stored below
  };

  struct Span {
    size_t node = 0;
    int first = 0;
    int last = 0;
    bool Inside(int from, int to) const { return from <= first && last <= to; }
    bool Apart(int from, int to) const { return last < from || to < first; }
    Span Left() const { return {2 * node + 1, first, first + (last - first) / 2}; }
    Span Right() const { return {2 * node + 2, first + (last - first) / 2 + 1, last}; }
  };

  struct Reader {
    const Run* next = nullptr;
    const Run* end = nullptr;
  };

  void Read(const Runs& runs) {
    const std::vector<Run>& all = runs.all();
    if (!all.empty()) readers_.push_back({all.data(), all.data() + all.size()});
  }

  void Collect(Span span, int first, int last) {
    if (span.Apart(first, last)) return;
    const Node& node = nodes_[span.node];
    if (span.Inside(first, last)) {
      Read(node.within);
      return;
    }
    Read(node.through);
    Collect(span.Left(), first, last);
    Collect(span.Right(), first, last);
  }

  void Take(Span span, int first, int last, Run run) {
    if (span.Apart(first, last)) return;
    Node& node = nodes_[span.node];
    node.within.Add(run);
    if (span.Inside(first, last)) {
      node.through.Add(run);
      return;
    }
    Take(span.Left(), first, last, run);
    Take(span.Right(), first, last, run);
  }

  const int count_;
  std::vector<Node> nodes_;
  std::vector<Reader> readers_;  // of the search that runs
};

// Instants at which something begins or ends, by time: the others change nothing.
std::vector<int> Instants(const std::vector<Lifetime>& lifetimes) {
  std::vector<int> instants;
  for (const Lifetime& life : lifetimes) {
    instants.push_back(life.first);
    instants.push_back(life.last);
  }
  std::sort(instants.begin(), instants.end());
  instants.erase(std::unique(instants.begin(), instants.end()), instants.end());
  return instants;
}

}  // namespace

Placement PlaceLifetimes(const std::vector<Lifetime>& lifetimes) {
  Placement placement;
  placement.offset_bytes.assign(lifetimes.size(), 0);
  const std::vector<int> instants = Instants(lifetimes);
  const auto index_of = [&](int instant) {
    return static_cast<int>(std::lower_bound(instants.begin(), instants.end(), instant) -
                            instants.begin());
  };
  std::vector<size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (lifetimes[a].bytes != lifetimes[b].bytes) return lifetimes[a].bytes > lifetimes[b].bytes;
    return lifetimes[a].first < lifetimes[b].first;
  });
  TakenOffsets taken(static_cast<int>(instants.size()));
  for (const size_t i : order) {
    const Lifetime& life = lifetimes[i];
    if (life.bytes <= 0) continue;
    const int first = index_of(life.first);
    const int last = index_of(life.last);
    const int64_t offset = taken.LowestFree(first, last, life.bytes);
    const Run run = {offset, AlignUp(offset + life.bytes)};
    taken.Take(first, last, run);
    placement.offset_bytes[i] = offset;
    placement.bytes = std::max(placement.bytes, run.end);
  }
  return placement;
}

int64_t MostLiveBytes(const std::vector<Lifetime>& lifetimes) {
  std::vector<std::pair<int, int64_t>> changes;
  for (const Lifetime& life : lifetimes) {
    if (life.bytes <= 0) continue;
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
  return most_bytes;
}

}  // namespace meshwright::ir
