// cross_entropy, its gradient and logsumexp: rows over the team, the sum of the losses in row
// order.
#include <algorithm>
#include <cmath>

#include "ops/cpu/cpu.h"
#include "ops/cpu/vec_rows.h"
#include "ops/parallel.h"
#include "ops/token_ids.h"

namespace meshwright::ops::cpu {
namespace {

float LogSumExpRow(const float* x, int64_t count) {
  const float largest = VecMax(x, count);
  if (std::isinf(largest)) return largest;
  const double sum = static_cast<double>(VecExpSum(x, largest, nullptr, count));
  return static_cast<float>(static_cast<double>(largest) + std::log(sum));
}

void LogSumExpRows(const RunContext& context, const float* x, int64_t rows, int64_t width,
                   float* lse) {
  ParallelRange(context, rows, RowGrain(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) lse[r] = LogSumExpRow(x + r * width, width);
  });
}

KernelResult MakeCrossEntropy(int64_t width, int64_t ignore) {
  return MakeFunctionKernel(
      [width, ignore](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        const float* logits = inputs[0].as<float>();
        const int32_t* labels = inputs[1].as<int32_t>();
        const int64_t rows = inputs[1].elements();
        float* lse = outputs[2].as<float>();
        MW_TRY(CheckTokenIds("cross_entropy", labels, rows, width, ignore));
        LogSumExpRows(context, logits, rows, width, lse);
        double loss = 0;
        int64_t count = 0;
        for (int64_t r = 0; r < rows; ++r) {
          if (labels[r] == ignore) continue;
          loss += static_cast<double>(lse[r]) - static_cast<double>(logits[r * width + labels[r]]);
          ++count;
        }
        *outputs[0].as<float>() = static_cast<float>(loss);
        *outputs[1].as<float>() = static_cast<float>(count);
        return {};
      });
}

KernelResult MakeCrossEntropyGrad(const ShardBlock& block, int64_t ignore) {
  return MakeFunctionKernel([block, ignore](const RunContext& context, Inputs inputs,
                                            Outputs outputs) -> Status {
    const int dim = static_cast<int>(block.local_dims.size()) - 1;
    const int64_t width = block.local_dims.back();
    const int64_t first = block.Start(dim, context.microbatch);
    const int64_t valid = block.Valid(dim, context.microbatch);
    const int32_t* labels = inputs[1].as<int32_t>();
    const float dloss = *inputs[3].as<float>();
    ParallelRange(context, inputs[1].elements(), RowGrain(width), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        float* grad = outputs[0].as<float>() + r * width;
        const int64_t used = labels[r] == ignore ? 0 : valid;
        VecExpScaled(inputs[0].as<float>() + r * width, inputs[2].as<float>()[r], dloss, grad,
                     used);
        std::fill(grad + used, grad + width, 0.0f);
        const int64_t column = labels[r] - first;
        if (column >= 0 && column < used) grad[column] -= dloss;
      }
    });
    return {};
  });
}

}  // namespace

KernelResult MakeLoss(const KernelSpec& spec) {
  const int64_t width = spec.inputs[0].dims.back();
  const int64_t ignore = spec.attrs.Int("ignore_index", kDefaultIgnoreIndex);
  if (spec.op == ir::Op::kCrossEntropy) return MakeCrossEntropy(width, ignore);
  if (spec.op == ir::Op::kCrossEntropyGrad) {
    MW_ASSIGN_OR_RETURN(const ShardBlock block, spec.BlockOf(spec.inputs[0]));
    return MakeCrossEntropyGrad(block, ignore);
  }
  return MakeFunctionKernel(
      [width](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        LogSumExpRows(context, inputs[0].as<float>(), outputs[0].elements(), width,
                      outputs[0].as<float>());
        return {};
      });
}

}  // namespace meshwright::ops::cpu
