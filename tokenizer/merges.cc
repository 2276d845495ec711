#include "tokenizer/merges.h"

#include <algorithm>
#include <array>
#include <bit>
#include <queue>

#include "base/check.h"

namespace meshwright::tokenizer {
namespace {

constexpr size_t kShort = 48;

uint64_t PairOf(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }

}  // namespace

void MergeTable::Reserve(size_t merges) {
  const std::vector<Slot> before = std::move(slots_);
  slots_.assign(std::bit_ceil(2 * merges + 16), Slot());
  for (const Slot& slot : before) {
    if (slot.merge.rank != kNone) slots_[SlotOf(slot.pair)] = slot;
  }
}

size_t MergeTable::SlotOf(uint64_t pair) const {
  const size_t mask = slots_.size() - 1;
  uint64_t hash = pair * 0x9e3779b97f4a7c15;
  hash ^= hash >> 32;
  size_t at = hash & mask;
  while (slots_[at].merge.rank != kNone && slots_[at].pair != pair) at = (at + 1) & mask;
  return at;
}

void MergeTable::Add(uint32_t left, uint32_t right, Merge merge) {
  MW_CHECK(merge.rank != kNone);
  if (slots_.size() < 2 * (size_ + 1)) Reserve(size_ + 16);
  Slot& slot = slots_[SlotOf(PairOf(left, right))];
  size_ += slot.merge.rank == kNone ? 1 : 0;
  slot = {PairOf(left, right), merge};
}

MergeTable::Merge MergeTable::Find(uint32_t left, uint32_t right) const {
  return slots_.empty() ? Merge() : slots_[SlotOf(PairOf(left, right))].merge;
}

void MergeTable::Apply(std::vector<uint32_t>& ids, size_t begin) const {
  if (ids.size() - begin <= kShort) {
    ApplyShort(ids, begin);
  } else {
    ApplyLong(ids, begin);
  }
}

void MergeTable::ApplyShort(std::vector<uint32_t>& ids, size_t begin) const {
  size_t count = ids.size() - begin;
  if (count < 2) return;
  uint32_t* const word = ids.data() + begin;
  std::array<Merge, kShort> merges;  // merges[i] of word[i] and word[i + 1]
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = Find(word[i], word[i + 1]);
  while (count > 1) {
    const auto* const best =
        std::min_element(merges.data(), merges.data() + count - 1,
                         [](const Merge& a, const Merge& b) { return a.rank < b.rank; });
    if (best->rank == kNone) break;
    const auto at = static_cast<size_t>(best - merges.data());
    word[at] = best->id;
    std::copy(word + at + 2, word + count, word + at + 1);
    std::copy(merges.data() + at + 1, merges.data() + count - 1, merges.data() + at);
    --count;
    if (at > 0) merges[at - 1] = Find(word[at - 1], word[at]);
    if (at + 1 < count) merges[at] = Find(word[at], word[at + 1]);
  }
  ids.resize(begin + count);
}

void MergeTable::ApplyLong(std::vector<uint32_t>& ids, size_t begin) const {
  // Symbols are a list within an array; one that was merged into its left neighbour is dead.
  struct Symbol {
    uint32_t previous = 0;
    uint32_t next = 0;
    bool dead = false;
  };
  struct Candidate {
    uint32_t rank = 0;
    uint32_t at = 0;
    uint32_t id = 0;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  uint32_t* const word = ids.data() + begin;
  const auto count = static_cast<uint32_t>(ids.size() - begin);
  std::vector<Symbol> symbols(count);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto offer = [&](uint32_t left, uint32_t right) {
    const Merge merge = Find(word[left], word[right]);
    if (merge.rank != kNone) queue.push({merge.rank, left, merge.id});
  };
  for (uint32_t i = 0; i < count; ++i) {
    symbols[i] = {i - 1, i + 1, false};  // the first one's previous is never read
    if (i + 1 < count) offer(i, i + 1);
  }
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.at];
    if (left.dead || left.next >= count) continue;
    const uint32_t right = left.next;
    const Merge merge = Find(word[best.at], word[right]);
    if (merge.rank != best.rank || merge.id != best.id) continue;  // of a pair that is no more
    word[best.at] = best.id;
    symbols[right].dead = true;
    left.next = symbols[right].next;
    if (left.next < count) symbols[left.next].previous = best.at;
    if (best.at > 0) offer(left.previous, best.at);
    if (left.next < count) offer(best.at, left.next);
  }
  size_t kept = 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (!symbols[i].dead) word[kept++] = word[i];
  }
  ids.resize(begin + kept);
}

}  // namespace meshwright::tokenizer
