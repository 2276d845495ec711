// One token's heads of one kv head against the pages of its text; compiled for several instruction
// sets.
//
// Idea: scores of a page are one chain of multiply-adds over e with a lane per position, a value's
// sums one over positions with a lane per element. So the bits depend on the token's own text and
// place alone. Thread rule: pure functions.
#pragma once

#include <cstdint>

namespace meshwright::ops::cpu {

struct PagedRow {
  int64_t heads = 0;  // queries that share the kv head
  int64_t e = 0;
  int64_t page_tokens = 0;
  int64_t first = 0;  // the first position that is seen
  int64_t last = 0;   // the last, which is the token's own
  float scale = 1;
  float cap = 0;                   // scaled scores s count as cap * tanh(s / cap); 0: as they are
  const float* bias = nullptr;     // [heads, places()]: added to the scaled scores; null: nothing
  const int32_t* pages = nullptr;  // of the text
  int64_t page_stride = 0;         // elements from a page to the next
  const float* q = nullptr;        // [heads, e]
  float* o = nullptr;              // [heads, e]
  float* lse = nullptr;            // [heads]
  float* scores = nullptr;         // scratch, PagedScores() floats

  // Scores of a head: whole pages from that of the first position on, up to whole vectors.
  int64_t places() const {
    const int64_t of_pages = last / page_tokens - first / page_tokens + 1;
    return (of_pages * page_tokens + 31) / 16 * 16;
  }
};

// Of one row, for all its heads.
inline int64_t PagedScores(const PagedRow& row) { return row.heads * row.places() + row.heads; }

// keys, values: of page 0 and the kv head. T: float or uint16_t.
void VecPagedRow(const PagedRow& row, const float* keys, const float* values);
void VecPagedRow(const PagedRow& row, const uint16_t* keys, const uint16_t* values);

}  // namespace meshwright::ops::cpu
