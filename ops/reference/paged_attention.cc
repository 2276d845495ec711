// paged_attention, one token and head at a time: o = sum p[j] v[j], p[j] = exp(scale q.k[j] - lse),
// over the positions j of the token's text that it sees; scaled scores may be capped, and a bias is
// added to them then.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "ops/paged_shape.h"
#include "ops/reference/larger.h"
#include "ops/reference/reference.h"

namespace meshwright::ops::reference {
namespace {

template <typename T>
void WriteToken(const PagedShape& shape, Inputs inputs, int64_t token, T* pages) {
  const PagedToken at = PagedKeyAt(shape, inputs, token);
  if (at.pages == nullptr) return;
  const int64_t slot = at.position % shape.page_tokens;
  const int32_t page = at.pages[at.position / shape.page_tokens];
  for (int64_t group = 0; group < shape.g; ++group) {
    const int64_t from = (token * shape.g + group) * shape.e;
    T* keys = pages + shape.KeysOf(at.batch, page, group);
    T* values = pages + shape.ValuesOf(at.batch, page, group);
    for (int64_t i = 0; i < shape.e; ++i) {
      keys[i * shape.page_tokens + slot] = inputs[kPagedK].as<T>()[from + i];
      values[slot * shape.e + i] = inputs[kPagedV].as<T>()[from + i];
    }
  }
}

// Writes o [e] and returns lse. bias: of the head, or null.
template <typename T>
double AttendHead(const PagedShape& shape, const PagedToken& at, int64_t group, const T* q,
                  const T* pages, const T* bias, T* o) {
  std::vector<double> scores;
  double largest = -std::numeric_limits<double>::infinity();
  const int64_t first = shape.First(at.position);
  for (int64_t j = first; j <= at.position; ++j) {
    const T* keys = pages + shape.KeysOf(at.batch, at.pages[j / shape.page_tokens], group);
    double score = 0;
    for (int64_t i = 0; i < shape.e; ++i) {
      score += static_cast<double>(q[i]) * keys[i * shape.page_tokens + j % shape.page_tokens];
    }
    score *= shape.scale();
    const double cap = shape.score_cap;
    scores.push_back(cap > 0 ? cap * std::tanh(score / cap) : score);
    if (bias != nullptr) scores.back() += bias[shape.BiasAt(at.position - j)];
    largest = Larger(largest, scores.back());
  }
  double total = 0;
  for (const double score : scores) total += std::exp(score - largest);
  const double lse = largest + std::log(total);
  std::vector<double> sums(static_cast<size_t>(shape.e));
  for (int64_t j = first; j <= at.position; ++j) {
    const T* values = pages + shape.ValuesOf(at.batch, at.pages[j / shape.page_tokens], group) +
                      j % shape.page_tokens * shape.e;
    const double p = std::exp(scores[static_cast<size_t>(j - first)] - lse);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += p * values[i];
  }
  for (size_t i = 0; i < sums.size(); ++i) o[i] = static_cast<T>(sums[i]);
  return lse;
}

template <typename T>
KernelResult Make(const PagedShape& shape) {
  return MakeFunctionKernel([shape](const RunContext&, Inputs inputs, Outputs outputs) -> Status {
    MW_TRY(CheckPagedTokens(shape, inputs));
    T* pages = outputs[2].as<T>();
    if (pages != inputs[kPagedPages].as<T>()) {
      std::memcpy(pages, inputs[kPagedPages].data,
                  static_cast<size_t>(inputs[kPagedPages].type->bytes()));
    }
    const int64_t tokens = shape.b * shape.n;
    for (int64_t i = 0; i < shape.b * shape.keys; ++i) WriteToken(shape, inputs, i, pages);
    for (int64_t i = 0; i < tokens * shape.h; ++i) {
      const int64_t token = i / shape.h;
      const int64_t head = i % shape.h;
      const PagedToken at = PagedTokenAt(shape, inputs, token);
      T* o = outputs[0].as<T>() + i * shape.e;
      T& lse = outputs[1].as<T>()[(at.batch * shape.h + head) * shape.n + token % shape.n];
      std::fill(o, o + shape.e, T{0});
      lse = -std::numeric_limits<T>::infinity();
      if (at.pages == nullptr) continue;
      const T* bias =
          shape.distances == 0 ? nullptr : inputs[shape.bias()].as<T>() + head * shape.distances;
      lse = static_cast<T>(AttendHead<T>(shape, at, head / shape.heads_per_group(),
                                         inputs[kPagedQ].as<T>() + i * shape.e, pages, bias, o));
    }
    return {};
  });
}

}  // namespace

KernelResult MakePagedAttention(const KernelSpec& spec) {
  if (spec.inputs[kPagedPages].dtype != spec.inputs[kPagedQ].dtype) {
    return Fail(NoKernel(spec, "reference"));
  }
  return ForFloatType(spec, spec.inputs[kPagedQ].dtype, [&](auto zero) -> KernelResult {
    return Make<decltype(zero)>(PagedShapeOf(spec));
  });
}

}  // namespace meshwright::ops::reference
