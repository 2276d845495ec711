// gather, scatter_add, one_hot, top_k.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/parallel.h"
#include "ops/reference/reference.h"
#include "ops/token_ids.h"

namespace meshwright::ops::reference {
namespace {

// A tensor around one of its dims: element (o, i, n) is (o * size + i) * inner + n.
struct Along {
  int64_t outer = 1;
  int64_t inner = 1;
  int64_t from = 1;  // elements along the dim of what is read from or added to
  int64_t ids = 1;   // of the ids
};

Along AlongOf(const KernelSpec& spec, const ir::Dims& values, const ir::Dims& ids) {
  const auto dim = static_cast<size_t>(spec.attrs.Int("dim"));
  return {Product(values, 0, dim), Product(values, dim + 1, values.size()), values[dim], ids[dim]};
}

// Whatever the elements are: only their bytes move.
KernelResult MakeGatherOf(const KernelSpec& spec) {
  const Along along = AlongOf(spec, spec.inputs[0].dims, spec.inputs[1].dims);
  const auto bytes = static_cast<size_t>(ir::DTypeBytes(spec.inputs[0].dtype));
  return MakeFunctionKernel(
      [along, bytes](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        const int32_t* ids = inputs[1].as<int32_t>();
        MW_TRY(CheckTokenIds("gather", ids, inputs[1].elements(), along.from));
        const auto* x = inputs[0].as<std::byte>();
        auto* out = outputs[0].as<std::byte>();
        const int64_t rows = along.outer * along.ids;
        ParallelRange(context, rows, RowGrain(along.inner), [&](int64_t begin, int64_t end) {
          for (int64_t r = begin; r < end; ++r) {
            for (int64_t n = 0; n < along.inner; ++n) {
              const int64_t at = r * along.inner + n;
              const int64_t place = (r / along.ids * along.from + ids[at]) * along.inner + n;
              std::memcpy(out + static_cast<size_t>(at) * bytes,
                          x + static_cast<size_t>(place) * bytes, bytes);
            }
          }
        });
        return {};
      });
}

template <typename T>
KernelResult MakeScatterAddOf(const KernelSpec& spec) {
  const Along along = AlongOf(spec, spec.outputs[0].dims, spec.inputs[0].dims);
  return MakeFunctionKernel(
      [along](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        const int32_t* ids = inputs[0].as<int32_t>();
        MW_TRY(CheckTokenIds("scatter_add", ids, inputs[0].elements(), along.from));
        ParallelItems(context, along.outer, [&](int64_t o) {
          T* out = outputs[0].as<T>() + o * along.from * along.inner;
          std::fill_n(out, along.from * along.inner, T{0});
          const int64_t first = o * along.ids * along.inner;
          for (int64_t i = 0; i < along.ids * along.inner; ++i) {
            out[ids[first + i] * along.inner + i % along.inner] += inputs[1].as<T>()[first + i];
          }
        });
        return {};
      });
}

template <typename T>
KernelResult MakeOneHotOf(const KernelSpec& spec) {
  const int64_t size = spec.attrs.Int("size");
  const int64_t ignored = spec.attrs.Int("ignore_index", INT64_MIN);
  return MakeFunctionKernel([size, ignored](const RunContext& context, Inputs inputs,
                                            Outputs outputs) -> Status {
    const int32_t* ids = inputs[0].as<int32_t>();
    T* out = outputs[0].as<T>();
    ParallelRange(context, inputs[0].elements(), RowGrain(size), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        std::fill_n(out + r * size, size, T{0});
        const int64_t id = ids[r];
        if (id >= 0 && id < size && id != ignored) out[r * size + id] = T{1};
      }
    });
    return {};
  });
}

// Whether element i of a row comes before element j: no two are equal.
template <typename T>
bool Before(const T* x, int32_t i, int32_t j) {
  const bool i_is_nan = std::isnan(x[i]);
  const bool j_is_nan = std::isnan(x[j]);
  if (i_is_nan != j_is_nan) return i_is_nan;
  if (i_is_nan || x[i] == x[j]) return i < j;
  return x[i] > x[j];
}

// The best k so far are a heap whose first is the last one of them.
template <typename T>
void TopOfRow(const T* x, int64_t width, int64_t k, T* values, int32_t* ids) {
  const auto before = [x](int32_t i, int32_t j) { return Before(x, i, j); };
  for (int64_t i = 0; i < k; ++i) ids[i] = static_cast<int32_t>(i);
  std::make_heap(ids, ids + k, before);
  for (int64_t i = k; i < width; ++i) {
    const auto id = static_cast<int32_t>(i);
    if (!before(id, ids[0])) continue;
    std::pop_heap(ids, ids + k, before);
    ids[k - 1] = id;
    std::push_heap(ids, ids + k, before);
  }
  std::sort_heap(ids, ids + k, before);
  for (int64_t i = 0; i < k; ++i) values[i] = x[ids[i]];
}

template <typename T>
KernelResult MakeTopKOf(const KernelSpec& spec) {
  const int64_t width = spec.inputs[0].dims.back();
  const int64_t k = spec.attrs.Int("k");
  return MakeFunctionKernel(
      [width, k](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        const int64_t rows = inputs[0].elements() / width;
        ParallelRange(context, rows, RowGrain(4 * width), [&](int64_t begin, int64_t end) {
          for (int64_t r = begin; r < end; ++r) {
            TopOfRow(inputs[0].as<T>() + r * width, width, k, outputs[0].as<T>() + r * k,
                     outputs[1].as<int32_t>() + r * k);
          }
        });
        return {};
      });
}

}  // namespace

KernelResult MakeGather(const KernelSpec& spec) { return MakeGatherOf(spec); }

KernelResult MakeScatterAdd(const KernelSpec& spec) {
  return ForFloatType(spec, spec.outputs[0].dtype,
                      [&](auto zero) { return MakeScatterAddOf<decltype(zero)>(spec); });
}

KernelResult MakeOneHot(const KernelSpec& spec) {
  return ForFloatType(spec, spec.outputs[0].dtype,
                      [&](auto zero) { return MakeOneHotOf<decltype(zero)>(spec); });
}

KernelResult MakeTopK(const KernelSpec& spec) {
  return ForFloatType(spec, spec.outputs[0].dtype,
                      [&](auto zero) { return MakeTopKOf<decltype(zero)>(spec); });
}

}  // namespace meshwright::ops::reference
