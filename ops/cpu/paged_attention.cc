// paged_attention: all keys and values are written first, then every token and kv head is alone.
#include <algorithm>
#include <limits>

#include "ops/cpu/copy_tensor.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/vec_half.h"
#include "ops/cpu/vec_paged.h"
#include "ops/paged_shape.h"
#include "ops/parallel.h"

namespace meshwright::ops::cpu {
namespace {

int64_t RoundUp(int64_t count) { return (count + 15) / 16 * 16; }

void Widen(const float* from, int64_t count, float* to) { std::copy(from, from + count, to); }
void Widen(const uint16_t* from, int64_t count, float* to) { VecWiden(from, to, count); }
void Narrow(const float* from, int64_t count, float* to) { std::copy(from, from + count, to); }
void Narrow(const float* from, int64_t count, uint16_t* to) { VecNarrow(from, to, count); }

// T: of q, k, v and o; P: of the pages.
template <typename T, typename P>
class Paged final : public Kernel {
 public:
  explicit Paged(const PagedShape& shape) : shape_(shape) {}

  Status Run(const RunContext& context, Inputs inputs, Outputs outputs) override {
    MW_TRY(CheckPagedTokens(shape_, inputs));
    CopyTensor(context, inputs[kPagedPages], outputs[2]);
    const int64_t tokens = shape_.b * shape_.n;
    ParallelRange(context, shape_.b * shape_.keys, RowGrain(2 * shape_.g * shape_.e),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) Write(inputs, outputs, i);
                  });
    // Tokens of one kv head follow each other: those of one text read the same pages.
    ParallelItems(context, tokens * shape_.g,
                  [&](int64_t item) { Attend(inputs, outputs, item % tokens, item / tokens); });
    return {};
  }

 private:
  void Write(Inputs inputs, Outputs outputs, int64_t token) const {
    const PagedToken at = PagedKeyAt(shape_, inputs, token);
    if (at.pages == nullptr) return;
    const int64_t slot = at.position % shape_.page_tokens;
    const int32_t page = at.pages[at.position / shape_.page_tokens];
    float* wide = ThreadScratch(2 * RoundUp(shape_.e));
    for (int64_t group = 0; group < shape_.g; ++group) {
      const int64_t from = (token * shape_.g + group) * shape_.e;
      Widen(inputs[kPagedK].as<T>() + from, shape_.e, wide);
      P* narrow = reinterpret_cast<P*>(wide + RoundUp(shape_.e));
      Narrow(wide, shape_.e, narrow);
      P* keys = outputs[2].as<P>() + shape_.KeysOf(at.batch, page, group);
      for (int64_t i = 0; i < shape_.e; ++i) keys[i * shape_.page_tokens + slot] = narrow[i];
      Widen(inputs[kPagedV].as<T>() + from, shape_.e, wide);
      Narrow(wide, shape_.e,
             outputs[2].as<P>() + shape_.ValuesOf(at.batch, page, group) + slot * shape_.e);
    }
  }

  void Attend(Inputs inputs, Outputs outputs, int64_t token, int64_t group) const {
    const PagedToken at = PagedTokenAt(shape_, inputs, token);
    const int64_t heads = shape_.heads_per_group();
    const int64_t first_head = group * heads;
    const int64_t elements = heads * shape_.e;
    T* o = outputs[0].as<T>() + (token * shape_.h + first_head) * shape_.e;
    const auto lse = [&](int64_t head) -> float& {
      return outputs[1].as<float>()[(at.batch * shape_.h + head) * shape_.n + token % shape_.n];
    };
    if (at.pages == nullptr) {
      std::fill(o, o + elements, T{0});
      for (int64_t i = 0; i < heads; ++i) {
        lse(first_head + i) = -std::numeric_limits<float>::infinity();
      }
      return;
    }
    PagedRow row;
    row.heads = heads;
    row.e = shape_.e;
    row.page_tokens = shape_.page_tokens;
    row.first = shape_.First(at.position);
    row.last = at.position;
    row.scale = static_cast<float>(shape_.scale());
    row.cap = static_cast<float>(shape_.score_cap);
    row.pages = at.pages;
    row.page_stride = shape_.KeysOf(0, 1, 0);
    const int64_t part = RoundUp(elements);
    const int64_t biases = shape_.distances > 0 ? heads * row.places() : 0;
    float* scratch = ThreadScratch(2 * part + RoundUp(heads) + biases + PagedScores(row));
    Widen(inputs[kPagedQ].as<T>() + (token * shape_.h + first_head) * shape_.e, elements, scratch);
    row.q = scratch;
    row.o = scratch + part;
    row.lse = scratch + 2 * part;
    float* const bias = scratch + 2 * part + RoundUp(heads);
    row.scores = bias + biases;
    if (biases > 0) {
      PlaceBias(row, inputs[shape_.bias()].as<T>() + first_head * shape_.distances, bias);
      row.bias = bias;
    }
    const P* pages = outputs[2].as<P>();
    VecPagedRow(row, pages + shape_.KeysOf(at.batch, 0, group),
                pages + shape_.ValuesOf(at.batch, 0, group));
    Narrow(row.o, elements, o);
    for (int64_t i = 0; i < heads; ++i) lse(first_head + i) = row.lse[i];
  }

  // bias [heads, places]: what the heads' `by_distance` says of each place that is seen, else 0.
  void PlaceBias(const PagedRow& row, const T* by_distance, float* bias) const {
    const int64_t start = row.first / row.page_tokens * row.page_tokens;
    std::fill(bias, bias + row.heads * row.places(), 0.0f);
    for (int64_t head = 0; head < row.heads; ++head) {
      const T* of_head = by_distance + head * shape_.distances;
      float* to = bias + head * row.places() - start;
      for (int64_t j = row.first; j <= row.last; ++j) {
        Widen(of_head + shape_.BiasAt(row.last - j), 1, to + j);
      }
    }
  }

  PagedShape shape_;
};

template <typename T>
KernelResult MakeOf(const PagedShape& shape, ir::DType pages) {
  if (pages == ir::DType::kBF16) {
    return std::unique_ptr<Kernel>(std::make_unique<Paged<T, uint16_t>>(shape));
  }
  return std::unique_ptr<Kernel>(std::make_unique<Paged<T, float>>(shape));
}

}  // namespace

KernelResult MakePagedAttention(const KernelSpec& spec) {
  const PagedShape shape = PagedShapeOf(spec);
  const ir::DType pages = spec.inputs[kPagedPages].dtype;
  return spec.inputs[kPagedQ].dtype == ir::DType::kBF16 ? MakeOf<uint16_t>(shape, pages)
                                                        : MakeOf<float>(shape, pages);
}

}  // namespace meshwright::ops::cpu
