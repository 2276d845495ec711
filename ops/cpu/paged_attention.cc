// paged_attention: all keys and values are written first, then every token and kv head is alone.
#include <algorithm>
#include <array>
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

constexpr int64_t kRowsAtOnce = 4;
constexpr int64_t kBlockTokens = 4;

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
    const int64_t blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
    ParallelItems(context, blocks * shape_.g, [&](int64_t item) {
      const int64_t from = item % blocks * kBlockTokens;
      AttendBlock(inputs, outputs, from, std::min(from + kBlockTokens, tokens), item / blocks);
    });
    return {};
  }

 private:
  void Write(Inputs inputs, Outputs outputs, int64_t token) const {
    const PagedToken at = PagedKeyAt(shape_, inputs, token);
    if (at.pages == nullptr) return;
    const int64_t slot = at.position % shape_.page_tokens;
    const int32_t page = at.pages[at.position / shape_.page_tokens];
    float* wide = ThreadScratch(2 * WholeLines(shape_.e));
    for (int64_t group = 0; group < shape_.g; ++group) {
      const int64_t from = (token * shape_.g + group) * shape_.e;
      Widen(inputs[kPagedK].as<T>() + from, shape_.e, wide);
      P* narrow = reinterpret_cast<P*>(wide + WholeLines(shape_.e));
      Narrow(wide, shape_.e, narrow);
      P* keys = outputs[2].as<P>() + shape_.KeysOf(at.batch, page, group);
      for (int64_t i = 0; i < shape_.e; ++i) keys[i * shape_.page_tokens + slot] = narrow[i];
      Widen(inputs[kPagedV].as<T>() + from, shape_.e, wide);
      Narrow(wide, shape_.e,
             outputs[2].as<P>() + shape_.ValuesOf(at.batch, page, group) + slot * shape_.e);
    }
  }

  // Tokens of one text that begin to see in one page are attended to together.
  void AttendBlock(Inputs inputs, Outputs outputs, int64_t from, int64_t to, int64_t group) const {
    while (from < to) {
      const PagedToken first = PagedTokenAt(shape_, inputs, from);
      int64_t end = from + 1;
      for (; end < to; ++end) {
        const PagedToken next = PagedTokenAt(shape_, inputs, end);
        if (next.pages != first.pages || next.batch != first.batch ||
            FirstPage(next) != FirstPage(first)) {
          break;
        }
      }
      if (first.pages == nullptr) {
        for (; from < end; ++from) Hide(outputs, from, group);
      } else {
        Attend(inputs, outputs, from, end, group);
      }
      from = end;
    }
  }

  int64_t FirstPage(const PagedToken& token) const {
    return shape_.First(token.position) / shape_.page_tokens;
  }

  float& LseOf(Outputs outputs, int64_t token, int64_t head) const {
    const int64_t batch = token / shape_.n;
    return outputs[1].as<float>()[(batch * shape_.h + head) * shape_.n + token % shape_.n];
  }

  // What is no token sees nothing.
  void Hide(Outputs outputs, int64_t token, int64_t group) const {
    const int64_t heads = shape_.heads_per_group();
    T* o = outputs[0].as<T>() + (token * shape_.h + group * heads) * shape_.e;
    std::fill(o, o + heads * shape_.e, T{0});
    for (int64_t i = 0; i < heads; ++i) {
      LseOf(outputs, token, group * heads + i) = -std::numeric_limits<float>::infinity();
    }
  }

  // Rows are heads of tokens [from, to), so many at once.
  void Attend(Inputs inputs, Outputs outputs, int64_t from, int64_t to, int64_t group) const {
    const int64_t heads = shape_.heads_per_group();
    const int64_t count = (to - from) * heads;
    const auto token_of = [&](int64_t index) { return from + index % (to - from); };
    const auto head_of = [&](int64_t index) { return group * heads + index / (to - from); };
    std::array<PagedRow, kRowsAtOnce> rows;
    std::array<float, kRowsAtOnce> lse;
    for (int64_t index = 0; index < count; index += kRowsAtOnce) {
      const int64_t taken = std::min(kRowsAtOnce, count - index);
      int64_t floats = 0;
      for (int64_t i = 0; i < taken; ++i) {
        PagedRow& row = rows[static_cast<size_t>(i)];
        row = RowOf(PagedTokenAt(shape_, inputs, token_of(index + i)));
        floats += 2 * WholeLines(shape_.e) + 2 * row.places();
      }
      float* scratch = ThreadScratch(floats);
      for (int64_t i = 0; i < taken; ++i) {
        PagedRow& row = rows[static_cast<size_t>(i)];
        row.lse = &lse[static_cast<size_t>(i)];
        scratch = Place(inputs, token_of(index + i), head_of(index + i), scratch, row);
      }
      const PagedToken any = PagedTokenAt(shape_, inputs, from);
      const P* pages = outputs[2].as<P>();
      VecPagedRows({rows.data(), static_cast<size_t>(taken)},
                   pages + shape_.KeysOf(any.batch, 0, group),
                   pages + shape_.ValuesOf(any.batch, 0, group));
      for (int64_t i = 0; i < taken; ++i) {
        const int64_t at = token_of(index + i) * shape_.h + head_of(index + i);
        Narrow(rows[static_cast<size_t>(i)].o, shape_.e, outputs[0].as<T>() + at * shape_.e);
        LseOf(outputs, token_of(index + i), head_of(index + i)) = lse[static_cast<size_t>(i)];
      }
    }
  }

  PagedRow RowOf(const PagedToken& token) const {
    PagedRow row;
    row.e = shape_.e;
    row.page_tokens = shape_.page_tokens;
    row.first = shape_.First(token.position);
    row.last = token.position;
    row.scale = static_cast<float>(shape_.scale());
    row.cap = static_cast<float>(shape_.score_cap);
    row.pages = token.pages;
    row.page_stride = shape_.KeysOf(0, 1, 0);
    return row;
  }

  // Gives the row its query, and room; returns the scratch behind it.
  float* Place(Inputs inputs, int64_t token, int64_t head, float* scratch, PagedRow& row) const {
    Widen(inputs[kPagedQ].as<T>() + (token * shape_.h + head) * shape_.e, shape_.e, scratch);
    row.q = scratch;
    row.o = scratch + WholeLines(shape_.e);
    row.scores = row.o + WholeLines(shape_.e);
    float* const bias = row.scores + row.places();
    if (shape_.distances > 0) {
      PlaceBias(row, inputs[shape_.bias()].as<T>() + head * shape_.distances, bias);
      row.bias = bias;
    }
    return bias + row.places();
  }

  // bias [places]: what the head's `by_distance` says of each place that is seen, else 0.
  void PlaceBias(const PagedRow& row, const T* by_distance, float* bias) const {
    std::fill(bias, bias + row.places(), 0.0f);
    float* to = bias - row.first_page() * row.page_tokens;
    for (int64_t j = row.first; j <= row.last; ++j) {
      Widen(by_distance + shape_.BiasAt(row.last - j), 1, to + j);
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
