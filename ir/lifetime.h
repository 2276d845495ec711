// Where values that live for a while lie in one arena.
//
// A lifetime is a rectangle: its instants across, its bytes up. Placing is packing rectangles that
// may only move up and down. Each goes to the lowest offset that is free for as long as it lives,
// in one of three orders; the lowest arena is taken. What microbatches keep one after the other is
// dense in the order of its beginnings. Where some of it is kept for longer, large ones have to go
// first and leave the gaps between them to the small ones; or those of most bytes times instants.
// None is the best for all (docs/adr/0118-arenas-are-placed-in-three-orders.md). Of many lifetimes
// an order that leaves no more than 1 % unused is the last one that is tried.
//
// By beginning, what is free at the instant is all there is to know. Else what is occupied is kept
// in a tree over the instants. A node holds two unions of offsets: of what lives through all its
// instants, and of what lives at some of them. The instants of a lifetime are O(log n) nodes; its
// offset is the lowest gap that is common to what their ancestors hold through and what they hold
// in part. Arenas are dense, so unions are few runs of bytes: O(n log^2 n) in practice, O(n^2)
// where every gap is too small.
//
// Thread rule: pure functions. Source: segment tree, Bentley, 1977; first fit by decreasing size
// for dynamic storage allocation, Garey and Johnson, 1979, problem SR2.
#pragma once

#include <cstdint>
#include <vector>

namespace meshwright::ir {

// Of slots and temporaries in the arena: a cache line.
inline constexpr int64_t kSlotAlignmentBytes = 64;

struct Lifetime {
  int64_t bytes = 0;
  int first = 0;  // both inclusive
  int last = 0;
  friend bool operator==(const Lifetime&, const Lifetime&) = default;
};

struct Placement {
  std::vector<int64_t> offset_bytes;  // per lifetime, multiples of kSlotAlignmentBytes
  int64_t bytes = 0;                  // height of the arena
};

// Equal input gives equal offsets: ties go to what begins earlier or is larger (by bytes times
// instants not even that), then to the lower index; of arenas to the order that is tried first. A
// lifetime of no bytes has offset 0. REQUIRES: first <= last.
Placement PlaceLifetimes(const std::vector<Lifetime>& lifetimes);

// Aligned bytes that live together at the fullest instant: no arena is smaller. O(n log n).
// REQUIRES: as above.
int64_t MostLiveBytes(const std::vector<Lifetime>& lifetimes);

}  // namespace meshwright::ir
