// reduce_sum over leading dims or trailing dims, sum_squares. Fixed blocks of rows or elements; the
// blocks' partial sums are added in order, in double.
#include <algorithm>
#include <vector>

#include "ops/cpu/cpu.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/vec_elementwise.h"
#include "ops/cpu/vec_half.h"
#include "ops/cpu/vec_rows.h"
#include "ops/parallel.h"

namespace meshwright::ops::cpu {
namespace {

constexpr int64_t kBlockElements = 4096;

int64_t BlocksOf(int64_t count, int64_t block) { return (count + block - 1) / block; }

// x[rows, width] -> [width].
KernelResult MakeColumnSums(int64_t rows, int64_t width, bool half) {
  const int64_t block = std::max<int64_t>(16, BlocksOf(rows, 64));
  const int64_t blocks = BlocksOf(rows, block);
  return MakeFunctionKernel(
      [rows, width, block, blocks, half,
       partial = std::vector<float>(static_cast<size_t>(blocks * width))](
          const RunContext& context, Inputs inputs, Outputs outputs) mutable -> Status {
        ParallelItems(context, blocks, [&](int64_t item) {
          float* wide = half ? ThreadScratch(width) : nullptr;
          float* sums = partial.data() + item * width;
          std::fill_n(sums, width, 0.0f);
          const int64_t end = std::min((item + 1) * block, rows);
          for (int64_t r = item * block; r < end; ++r) {
            if (half) VecWiden(inputs[0].as<uint16_t>() + r * width, wide, width);
            VecAdd(sums, half ? wide : inputs[0].as<float>() + r * width, sums, width);
          }
        });
        for (int64_t j = 0; j < width; ++j) {
          double total = 0;
          for (int64_t i = 0; i < blocks; ++i) {
            total += static_cast<double>(partial[static_cast<size_t>(i * width + j)]);
          }
          outputs[0].as<float>()[j] = static_cast<float>(total);
        }
        return {};
      });
}

// x[rows, width] -> [rows].
KernelResult MakeRowSums(int64_t rows, int64_t width) {
  return MakeFunctionKernel(
      [rows, width](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        ParallelRange(context, rows, RowGrain(width), [&](int64_t begin, int64_t end) {
          for (int64_t r = begin; r < end; ++r) {
            const float* x = inputs[0].as<float>() + r * width;
            double total = 0;
            for (int64_t i = 0; i < width; i += kBlockElements) {
              total += static_cast<double>(VecSum(x + i, std::min(kBlockElements, width - i)));
            }
            outputs[0].as<float>()[r] = static_cast<float>(total);
          }
        });
        return {};
      });
}

KernelResult MakeReduceSum(const KernelSpec& spec) {
  const ir::Dims& dims = spec.inputs[0].dims;
  std::vector<bool> reduced(dims.size(), false);
  for (int64_t dim : spec.attrs.Ints("dims")) reduced.at(static_cast<size_t>(dim)) = true;
  const size_t leading =
      static_cast<size_t>(std::find(reduced.begin(), reduced.end(), false) - reduced.begin());
  const size_t kept =
      static_cast<size_t>(std::find(reduced.begin(), reduced.end(), true) - reduced.begin());
  const auto count = static_cast<size_t>(std::count(reduced.begin(), reduced.end(), true));
  const size_t rank = dims.size();
  const bool half = spec.inputs[0].dtype == ir::DType::kBF16;
  if (spec.outputs[0].dtype != ir::DType::kF32) return std::unique_ptr<Kernel>();
  if (count == leading) {
    return MakeColumnSums(Product(dims, 0, leading), Product(dims, leading, rank), half);
  }
  if (!half && count == rank - kept) {
    return MakeRowSums(Product(dims, 0, kept), Product(dims, kept, rank));
  }
  return std::unique_ptr<Kernel>();
}

KernelResult MakeSumSquares(const KernelSpec& spec) {
  const int64_t count = spec.inputs[0].elements();
  const int64_t blocks = BlocksOf(count, kBlockElements);
  const bool half = spec.inputs[0].dtype == ir::DType::kBF16;
  return MakeFunctionKernel(
      [count, blocks, half, partial = std::vector<float>(static_cast<size_t>(blocks))](
          const RunContext& context, Inputs inputs, Outputs outputs) mutable -> Status {
        ParallelRange(context, blocks, 4, [&](int64_t begin, int64_t end) {
          float* wide = half ? ThreadScratch(kBlockElements) : nullptr;
          for (int64_t i = begin; i < end; ++i) {
            const int64_t first = i * kBlockElements;
            const int64_t size = std::min(kBlockElements, count - first);
            if (half) VecWiden(inputs[0].as<uint16_t>() + first, wide, size);
            const float* x = half ? wide : inputs[0].as<float>() + first;
            partial[static_cast<size_t>(i)] = VecDot(x, x, size);
          }
        });
        double total = 0;
        for (float part : partial) total += static_cast<double>(part);
        *outputs[0].as<float>() = static_cast<float>(total);
        return {};
      });
}

}  // namespace

KernelResult MakeReduction(const KernelSpec& spec) {
  return spec.op == ir::Op::kReduceSum ? MakeReduceSum(spec) : MakeSumSquares(spec);
}

}  // namespace meshwright::ops::cpu
