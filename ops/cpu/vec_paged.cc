#include "ops/cpu/vec_paged.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "ops/cpu/vec_math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/vec_paged.cc"
// Includes this file once per instruction set; must come before the other Highway headers.
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "ops/cpu/vec_inl.h"
#include "ops/cpu/vec_wide_inl.h"

HWY_BEFORE_NAMESPACE();
namespace meshwright::ops::cpu {
namespace HWY_NAMESPACE {

// Rows and pages side by side: the sums of one wait for each other, those of several do not, and a
// key that is read once serves all rows.
template <int kRows, int kPages, typename T>
HWY_INLINE void Score(const PagedRow* rows, const T* keys, int64_t page) {
  const FloatTag d;
  const PagedRow& of_all = rows[0];
  const int64_t place = (page - of_all.first_page()) * of_all.page_tokens;
  const T* of_page[kPages];
  for (int p = 0; p < kPages; ++p) of_page[p] = keys + of_all.pages[page + p] * of_all.page_stride;
  for (int64_t j = 0; j < of_all.page_tokens; j += LaneCount()) {
    const int64_t left = of_all.page_tokens - j;
    FloatVec sums[kRows][kPages];
    for (int r = 0; r < kRows; ++r) {
      for (int p = 0; p < kPages; ++p) sums[r][p] = hn::Zero(d);
    }
    for (int64_t i = 0; i < of_all.e; ++i) {
      FloatVec key[kPages];
      for (int p = 0; p < kPages; ++p) {
        key[p] = LoadWideLanes(d, of_page[p] + i * of_all.page_tokens + j, left);
      }
      HWY_UNROLL(4)
      for (int r = 0; r < kRows; ++r) {
        const FloatVec factor = hn::Set(d, rows[r].q[i]);
        HWY_UNROLL(4)
        for (int p = 0; p < kPages; ++p) sums[r][p] = hn::MulAdd(factor, key[p], sums[r][p]);
      }
    }
    const auto count = static_cast<size_t>(std::min(LaneCount(), left));
    HWY_UNROLL(4)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(4)
      for (int p = 0; p < kPages; ++p) {
        StoreLanes(sums[r][p], d, rows[r].scores + place + p * of_all.page_tokens + j, count);
      }
    }
  }
}

// The pages [from, to) of one row.
template <typename T>
void ScoreOne(const PagedRow& row, const T* keys, int64_t from, int64_t to) {
  for (; from + 4 <= to; from += 4) Score<1, 4>(&row, keys, from);
  for (; from < to; ++from) Score<1, 1>(&row, keys, from);
}

// scores [count], of which `seen` are there: what is to be multiplied with to get scaled scores.
HWY_INLINE float Capped(const PagedRow& row, int64_t seen, float* scores) {
  if (row.cap <= 0) return row.scale;
  VecNative(ir::Op::kScale, scores, nullptr, row.scale / row.cap, scores, seen);
  VecNative(ir::Op::kTanh, scores, nullptr, 0, scores, seen);
  return row.cap;
}

// scores [count] -> exp(scale * (score - largest)); returns lse and the inverse of the sum. With a
// bias [count], scores are scaled when it is added.
HWY_INLINE float Softmax(const PagedRow& row, float& inverse) {
  const FloatTag d;
  const int64_t count = row.places();
  const float* const bias = row.bias;
  float* const scores = row.scores;
  const int64_t skipped = row.first % row.page_tokens;
  const int64_t seen = skipped + row.last - row.first + 1;
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  const float scaled = Capped(row, seen, scores);
  std::fill(scores, scores + skipped, kHidden);
  std::fill(scores + seen, scores + count, kHidden);
  const float scale = bias == nullptr ? scaled : 1.0f;
  if (bias != nullptr) {
    const FloatVec scaled_by = hn::Set(d, scaled);
    for (int64_t j = 0; j < count; j += LaneCount()) {
      const FloatVec added = hn::MulAdd(hn::Load(d, scores + j), scaled_by, hn::Load(d, bias + j));
      hn::Store(added, d, scores + j);
    }
  }
  FloatVec best = hn::Set(d, kHidden);
  for (int64_t j = 0; j < count; j += LaneCount()) best = hn::Max(best, hn::Load(d, scores + j));
  const float largest = hn::GetLane(hn::MaxOfLanes(d, best));
  const FloatVec factor = hn::Set(d, scale * kLog2OfE);
  const FloatVec shift = hn::Set(d, largest * scale * kLog2OfE);
  FloatVec sum = hn::Zero(d);
  for (int64_t j = 0; j < count; j += LaneCount()) {
    const FloatVec p = Exp2(d, hn::MulSub(hn::Load(d, scores + j), factor, shift));
    hn::Store(p, d, scores + j);
    sum = hn::Add(sum, p);
  }
  const float total = hn::GetLane(hn::SumOfLanes(d, sum));
  inverse = 1.0f / total;
  return largest * scale + std::log(total);
}

// o of each row, kVectors of it, += the values of positions [from, to) of a page, times their
// probabilities.
template <int kRows, int kVectors, typename T>
HWY_INLINE void AddValues(const PagedRow* rows, const T* values, int64_t place, int64_t from,
                          int64_t to, int64_t element) {
  const FloatTag d;
  const int64_t e = rows[0].e;
  FloatVec sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      const int64_t at = element + v * LaneCount();
      sums[r][v] = LoadWideLanes(d, rows[r].o + at, e - at);
    }
  }
  for (int64_t j = from; j < to; ++j) {
    FloatVec value[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      const int64_t at = element + v * LaneCount();
      value[v] = LoadWideLanes(d, values + j * e + at, e - at);
    }
    HWY_UNROLL(4)
    for (int r = 0; r < kRows; ++r) {
      const FloatVec weight = hn::Set(d, rows[r].scores[place + j]);
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(weight, value[v], sums[r][v]);
    }
  }
  HWY_UNROLL(4)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      const int64_t at = element + v * LaneCount();
      StoreLanes(sums[r][v], d, rows[r].o + at, static_cast<size_t>(std::min(LaneCount(), e - at)));
    }
  }
}

// Of positions [from, to) of the whole text, which lie in `page`.
template <int kRows, typename T>
HWY_INLINE void ValuesOf(const PagedRow* rows, const T* values, int64_t page, int64_t from,
                         int64_t to) {
  if (from >= to) return;
  const PagedRow& of_all = rows[0];
  const T* of_page = values + of_all.pages[page] * of_all.page_stride;
  const int64_t start = page * of_all.page_tokens;
  const int64_t place = start - of_all.first_page() * of_all.page_tokens;
  int64_t element = 0;
  for (; element + 4 * LaneCount() <= of_all.e; element += 4 * LaneCount()) {
    AddValues<kRows, 4>(rows, of_page, place, from - start, to - start, element);
  }
  for (; element < of_all.e; element += LaneCount()) {
    AddValues<kRows, 1>(rows, of_page, place, from - start, to - start, element);
  }
}

// What all rows see of a page they take together; a row's sum is in the order of positions, so
// that its bits are those that it has alone.
template <int kRows, typename T>
void RowsOf(const PagedRow* rows, const T* keys, const T* values) {
  const int64_t tokens = rows[0].page_tokens;
  const int64_t first_page = rows[0].first_page();
  int64_t first = rows[0].first;
  int64_t last = rows[0].last;
  int64_t last_of_any = last;
  for (int r = 1; r < kRows; ++r) {
    first = std::max(first, rows[r].first);
    last = std::min(last, rows[r].last);
    last_of_any = std::max(last_of_any, rows[r].last);
  }
  int64_t page = first_page;
  if (kRows > 1) {
    for (; page + 2 <= last / tokens + 1; page += 2) Score<kRows, 2>(rows, keys, page);
  }
  float inverses[kRows];
  for (int r = 0; r < kRows; ++r) {
    ScoreOne(rows[r], keys, page, rows[r].last / tokens + 1);
    *rows[r].lse = Softmax(rows[r], inverses[r]);
    std::fill(rows[r].o, rows[r].o + rows[r].e, 0.0f);
  }
  for (page = first_page; page <= last_of_any / tokens; ++page) {
    const int64_t start = page * tokens;
    const int64_t end = start + tokens;
    const int64_t from = std::clamp(first, start, end);
    const int64_t to = std::clamp(last + 1, from, end);
    for (int r = 0; kRows > 1 && r < kRows; ++r) {
      ValuesOf<1>(rows + r, values, page, std::max(rows[r].first, start), from);
    }
    ValuesOf<kRows>(rows, values, page, from, to);
    for (int r = 0; kRows > 1 && r < kRows; ++r) {
      ValuesOf<1>(rows + r, values, page, to, std::min(rows[r].last + 1, end));
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int64_t i = 0; i < rows[r].e; ++i) rows[r].o[i] *= inverses[r];
  }
}

template <typename T>
void RowsOf(std::span<const PagedRow> rows, const T* keys, const T* values) {
  if (rows.size() == 4) return RowsOf<4>(rows.data(), keys, values);
  for (const PagedRow& row : rows) RowsOf<1>(&row, keys, values);
}

void RowsOfFloats(std::span<const PagedRow> rows, const float* keys, const float* values) {
  RowsOf(rows, keys, values);
}
void RowsOfHalves(std::span<const PagedRow> rows, const uint16_t* keys, const uint16_t* values) {
  RowsOf(rows, keys, values);
}

}  // namespace HWY_NAMESPACE
}  // namespace meshwright::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshwright::ops::cpu {

HWY_EXPORT(RowsOfFloats);
HWY_EXPORT(RowsOfHalves);

void VecPagedRows(std::span<const PagedRow> rows, const float* keys, const float* values) {
  HWY_DYNAMIC_DISPATCH(RowsOfFloats)(rows, keys, values);
}

void VecPagedRows(std::span<const PagedRow> rows, const uint16_t* keys, const uint16_t* values) {
  HWY_DYNAMIC_DISPATCH(RowsOfHalves)(rows, keys, values);
}

}  // namespace meshwright::ops::cpu
#endif  // HWY_ONCE
