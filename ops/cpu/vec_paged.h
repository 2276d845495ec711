// One token's heads of one kv head against the pages of its text; compiled for several instruction
// sets.
//
// Idea: scores of a page are one chain of multiply-adds over e with a lane per position, a value's
// sums one over positions with a lane per element. So the bits depend on the token's own text and
// place alone. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <span>

namespace meshwright::ops::cpu {

// A token and one of its heads.
struct PagedRow {
  int64_t e = 0;
  int64_t page_tokens = 0;
  int64_t first = 0;  // the first position that is seen
  int64_t last = 0;   // the last, which is the token's own
  float scale = 1;
  float cap = 0;                   // scaled scores s count as cap * tanh(s / cap); 0: as they are
  const float* bias = nullptr;     // [places()]: added to the scaled scores; null: nothing
  const int32_t* pages = nullptr;  // of the text
  int64_t page_stride = 0;         // elements from a page to the next
  const float* q = nullptr;        // [e]
  float* o = nullptr;              // [e]
  float* lse = nullptr;
  float* scores = nullptr;  // scratch, places() floats

  int64_t first_page() const { return first / page_tokens; }
  // Scores: whole pages from that of the first position on, up to whole vectors.
  int64_t places() const {
    const int64_t of_pages = last / page_tokens - first / page_tokens + 1;
    return (of_pages * page_tokens + 31) / 16 * 16;
  }
};

// keys, values: of page 0 and the kv head. Four rows read them together, which is faster; a row has
// the same bits whatever others there are. T: float or uint16_t. REQUIRES that rows differ in their
// first and last positions and what is theirs alone, and begin in the same page.
void VecPagedRows(std::span<const PagedRow> rows, const float* keys, const float* values);
void VecPagedRows(std::span<const PagedRow> rows, const uint16_t* keys, const uint16_t* values);

}  // namespace meshwright::ops::cpu
