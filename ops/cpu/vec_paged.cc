#include "ops/cpu/vec_paged.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

template <typename T>
HWY_INLINE void ScorePage(const PagedRow& row, const T* keys, int64_t head, float* scores) {
  const FloatTag d;
  const float* q = row.q + head * row.e;
  for (int64_t j = 0; j < row.page_tokens; j += LaneCount()) {
    FloatVec sum = hn::Zero(d);
    for (int64_t i = 0; i < row.e; ++i) {
      const FloatVec key = LoadWideLanes(d, keys + i * row.page_tokens + j, row.page_tokens - j);
      sum = hn::MulAdd(hn::Set(d, q[i]), key, sum);
    }
    StoreLanes(sum, d, scores + j, static_cast<size_t>(std::min(LaneCount(), row.page_tokens - j)));
  }
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
HWY_INLINE float Softmax(const PagedRow& row, int64_t count, const float* bias, float* scores,
                         float& inverse) {
  const FloatTag d;
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

// o [kVectors] += the values of positions [from, to) of a page, times their probabilities.
template <int kVectors, typename T>
HWY_INLINE void AddValues(const PagedRow& row, const T* values, const float* p, int64_t from,
                          int64_t to, int64_t element, float* o) {
  const FloatTag d;
  FloatVec sums[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    const int64_t at = element + v * LaneCount();
    sums[v] = LoadWideLanes(d, o + at, row.e - at);
  }
  for (int64_t j = from; j < to; ++j) {
    const FloatVec weight = hn::Set(d, p[j]);
    for (int v = 0; v < kVectors; ++v) {
      const int64_t at = element + v * LaneCount();
      sums[v] = hn::MulAdd(weight, LoadWideLanes(d, values + j * row.e + at, row.e - at), sums[v]);
    }
  }
  HWY_UNROLL(4)
  for (int v = 0; v < kVectors; ++v) {
    const int64_t at = element + v * LaneCount();
    StoreLanes(sums[v], d, o + at, static_cast<size_t>(std::min(LaneCount(), row.e - at)));
  }
}

template <typename T>
HWY_INLINE void ValuesOfPage(const PagedRow& row, const T* values, const float* p, int64_t from,
                             int64_t to, float* o) {
  int64_t element = 0;
  for (; element + 4 * LaneCount() <= row.e; element += 4 * LaneCount()) {
    AddValues<4>(row, values, p, from, to, element, o);
  }
  for (; element < row.e; element += LaneCount()) {
    AddValues<1>(row, values, p, from, to, element, o);
  }
}

template <typename T>
void RowOf(const PagedRow& row, const T* keys, const T* values) {
  const int64_t count = row.places();
  const int64_t first_page = row.first / row.page_tokens;
  const int64_t last_page = row.last / row.page_tokens;
  for (int64_t page = first_page; page <= last_page; ++page) {
    const T* of_page = keys + row.pages[page] * row.page_stride;
    for (int64_t head = 0; head < row.heads; ++head) {
      ScorePage(row, of_page, head,
                row.scores + head * count + (page - first_page) * row.page_tokens);
    }
  }
  std::fill(row.o, row.o + row.heads * row.e, 0.0f);
  float* const inverses = row.scores + row.heads * count;
  for (int64_t head = 0; head < row.heads; ++head) {
    const float* bias = row.bias == nullptr ? nullptr : row.bias + head * count;
    row.lse[head] = Softmax(row, count, bias, row.scores + head * count, inverses[head]);
  }
  for (int64_t page = first_page; page <= last_page; ++page) {
    const T* of_page = values + row.pages[page] * row.page_stride;
    const int64_t start = page * row.page_tokens;
    const int64_t from = std::max<int64_t>(0, row.first - start);
    const int64_t to = std::min(row.page_tokens, row.last + 1 - start);
    for (int64_t head = 0; head < row.heads; ++head) {
      const float* p = row.scores + head * count + (page - first_page) * row.page_tokens;
      ValuesOfPage(row, of_page, p, from, to, row.o + head * row.e);
    }
  }
  for (int64_t i = 0; i < row.heads * row.e; ++i) row.o[i] *= inverses[i / row.e];
}

void RowOfFloats(const PagedRow& row, const float* keys, const float* values) {
  RowOf(row, keys, values);
}
void RowOfHalves(const PagedRow& row, const uint16_t* keys, const uint16_t* values) {
  RowOf(row, keys, values);
}

}  // namespace HWY_NAMESPACE
}  // namespace meshwright::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace meshwright::ops::cpu {

HWY_EXPORT(RowOfFloats);
HWY_EXPORT(RowOfHalves);

void VecPagedRow(const PagedRow& row, const float* keys, const float* values) {
  HWY_DYNAMIC_DISPATCH(RowOfFloats)(row, keys, values);
}

void VecPagedRow(const PagedRow& row, const uint16_t* keys, const uint16_t* values) {
  HWY_DYNAMIC_DISPATCH(RowOfHalves)(row, keys, values);
}

}  // namespace meshwright::ops::cpu
#endif  // HWY_ONCE
