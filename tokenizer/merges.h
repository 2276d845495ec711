// The merges of byte pair encoding, and what they make of a word.
//
// Again and again the pair of neighbours with the lowest rank becomes one token, the leftmost one
// where several have it. Short words look through their pairs each time; long ones keep them in a
// heap, O(n log n).
//
// Thread rule: immutable once filled; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace meshwright::tokenizer {

class MergeTable {
 public:
  struct Merge {
    uint32_t rank = kNone;
    uint32_t id = 0;
  };
  static constexpr uint32_t kNone = UINT32_MAX;

  // Makes room for `merges`.
  void Reserve(size_t merges);
  // A pair that is there gets the new rank. REQUIRES: rank != kNone.
  void Add(uint32_t left, uint32_t right, Merge merge);
  // The rank is kNone where the pair is not merged.
  Merge Find(uint32_t left, uint32_t right) const;

  // Merges ids[begin..] in place.
  void Apply(std::vector<uint32_t>& ids, size_t begin) const;

 private:
  struct Slot {
    uint64_t pair = 0;
    Merge merge;
  };
  size_t SlotOf(uint64_t pair) const;
  void ApplyShort(std::vector<uint32_t>& ids, size_t begin) const;
  void ApplyLong(std::vector<uint32_t>& ids, size_t begin) const;

  std::vector<Slot> slots_;
  size_t size_ = 0;
};

}  // namespace meshwright::tokenizer
