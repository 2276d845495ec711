// reduce_sum, reduce_max, sum_squares.
#include <algorithm>
#include <limits>
#include <vector>

#include "ops/parallel.h"
#include "ops/reference/larger.h"
#include "ops/reference/reference.h"

namespace meshwright::ops::reference {
namespace {

// Every element of the operand is added to its result element in operand order.
template <typename T>
KernelResult MakeReduceSumOf(const KernelSpec& spec) {
  const ir::Dims& dims = spec.inputs[0].dims;
  std::vector<bool> reduced(dims.size(), false);
  for (int64_t dim : spec.attrs.Ints("dims")) reduced.at(static_cast<size_t>(dim)) = true;
  ir::Dims strides(dims.size(), 0);  // in the result
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    if (reduced[i]) continue;
    strides[i] = stride;
    stride *= dims[i];
  }
  return MakeFunctionKernel(
      [dims, strides, sums = std::vector<double>(static_cast<size_t>(stride))](
          const RunContext&, Inputs inputs, Outputs outputs) mutable -> Status {
        std::fill(sums.begin(), sums.end(), 0.0);
        const T* x = inputs[0].as<T>();
        const size_t rank = dims.size();
        const int64_t inner = rank == 0 ? 1 : dims[rank - 1];
        const int64_t step = rank == 0 ? 0 : strides[rank - 1];
        const int64_t rows = inner == 0 ? 0 : inputs[0].elements() / inner;
        for (int64_t row = 0; row < rows; ++row) {
          int64_t target = 0;
          int64_t rest = row;
          for (size_t i = rank - 1; rank > 0 && i-- > 0;) {
            target += rest % dims[i] * strides[i];
            rest /= dims[i];
          }
          double* sum = sums.data() + target;
          for (int64_t i = 0; i < inner; ++i) sum[i * step] += x[row * inner + i];
        }
        T* out = outputs[0].as<T>();
        for (size_t i = 0; i < sums.size(); ++i) out[i] = static_cast<T>(sums[i]);
        return {};
      });
}

template <typename T>
KernelResult MakeSumSquaresOf() {
  return MakeFunctionKernel([](const RunContext&, Inputs inputs, Outputs outputs) -> Status {
    const T* x = inputs[0].as<T>();
    const int64_t count = inputs[0].elements();
    double total = 0;
    for (int64_t i = 0; i < count; ++i) {
      total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
    *outputs[0].as<T>() = static_cast<T>(total);
    return {};
  });
}

// How a reduction finds the elements of one result: loops over the kept dims lead to the first of
// them, those over the reduced dims to the others.
struct Loops {
  struct Loop {
    int64_t size;
    int64_t stride;
  };
  std::vector<Loop> kept;  // major first
  std::vector<Loop> reduced;
  int64_t count = 1;  // elements of a result

  static int64_t PlaceOf(const std::vector<Loop>& loops, int64_t index) {
    int64_t place = 0;
    for (size_t i = loops.size(); i-- > 0;) {
      place += index % loops[i].size * loops[i].stride;
      index /= loops[i].size;
    }
    return place;
  }
};

Loops LoopsOf(const KernelSpec& spec) {
  const ir::Dims& dims = spec.inputs[0].dims;
  const ir::Dims strides = RowMajorStrides(dims);
  const std::vector<int64_t> reduced = spec.attrs.Ints("dims");
  Loops loops;
  for (size_t i = 0; i < dims.size(); ++i) {
    const bool goes =
        std::find(reduced.begin(), reduced.end(), static_cast<int64_t>(i)) != reduced.end();
    (goes ? loops.reduced : loops.kept).push_back({dims[i], strides[i]});
    if (goes) loops.count *= dims[i];
  }
  return loops;
}

template <typename T>
KernelResult MakeReduceMaxOf(const KernelSpec& spec) {
  return MakeFunctionKernel(
      [loops = LoopsOf(spec)](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        const T* x = inputs[0].as<T>();
        T* out = outputs[0].as<T>();
        ParallelRange(context, outputs[0].elements(), RowGrain(loops.count),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t i = begin; i < end; ++i) {
                          const T* first = x + Loops::PlaceOf(loops.kept, i);
                          double largest = -std::numeric_limits<double>::infinity();
                          for (int64_t r = 0; r < loops.count; ++r) {
                            const T value = first[Loops::PlaceOf(loops.reduced, r)];
                            largest = Larger(largest, static_cast<double>(value));
                          }
                          out[i] = static_cast<T>(largest);
                        }
                      });
        return {};
      });
}

}  // namespace

KernelResult MakeReduceSum(const KernelSpec& spec) {
  return ForFloatType(spec, spec.inputs[0].dtype,
                      [&](auto zero) { return MakeReduceSumOf<decltype(zero)>(spec); });
}

KernelResult MakeReduceMax(const KernelSpec& spec) {
  return ForFloatType(spec, spec.inputs[0].dtype,
                      [&](auto zero) { return MakeReduceMaxOf<decltype(zero)>(spec); });
}

KernelResult MakeSumSquares(const KernelSpec& spec) {
  return ForFloatType(spec, spec.inputs[0].dtype,
                      [](auto zero) { return MakeSumSquaresOf<decltype(zero)>(); });
}

}  // namespace meshwright::ops::reference
