// embedding: rows over the team. embedding_grad: every piece of columns walks all ids in order, so
// that the sum of a row that occurs often does not depend on the team.
#include <algorithm>
#include <optional>

#include "ops/cpu/copy_tensor.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/vec_elementwise.h"
#include "ops/parallel.h"
#include "ops/token_ids.h"

namespace meshwright::ops::cpu {
namespace {

constexpr int64_t kColumns = 64;

template <typename T>
KernelResult MakeForward(const ShardBlock& block, std::optional<int64_t> ignored) {
  return MakeFunctionKernel(
      [block, ignored](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        const int32_t* ids = inputs[1].as<int32_t>();
        const int64_t count = inputs[1].elements();
        const int64_t width = block.local_dims[1];
        const int64_t first = block.Start(0, context.microbatch);
        MW_TRY(CheckTokenIds("embedding", ids, count, block.global_dims[0], ignored));
        ParallelRange(context, count, RowGrain(width), [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            T* out = outputs[0].as<T>() + i * width;
            const int64_t row = ids[i] - first;
            if (row < 0 || row >= block.local_dims[0] || ids[i] == ignored) {
              std::fill_n(out, width, T{0});
            } else {
              std::copy_n(inputs[0].as<T>() + row * width, width, out);
            }
          }
        });
        return {};
      });
}

KernelResult MakeGrad(const ShardBlock& block) {
  return MakeFunctionKernel([block](const RunContext& context, Inputs inputs,
                                    Outputs outputs) -> Status {
    const int32_t* ids = inputs[0].as<int32_t>();
    const int64_t count = inputs[0].elements();
    const int64_t width = block.local_dims[1];
    const int64_t first = block.Start(0, context.microbatch);
    MW_TRY(CheckTokenIds("embedding_grad", ids, count, block.global_dims[0]));
    float* out = outputs[0].as<float>();
    if (inputs.size() > 2) {
      CopyTensor(context, inputs[2], outputs[0]);
    } else {
      ParallelRange(context, outputs[0].elements(), kElementGrain,
                    [&](int64_t begin, int64_t end) { std::fill(out + begin, out + end, 0.0f); });
    }
    ParallelRange(context, width, kColumns, [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t row = ids[i] - first;
        if (row < 0 || row >= block.local_dims[0]) continue;
        float* target = out + row * width + begin;
        VecAdd(target, inputs[1].as<float>() + i * width + begin, target, end - begin);
      }
    });
    return {};
  });
}

}  // namespace

KernelResult MakeEmbedding(const KernelSpec& spec) {
  const bool forward = spec.op == ir::Op::kEmbedding;
  MW_ASSIGN_OR_RETURN(const ShardBlock block,
                      spec.BlockOf(forward ? spec.inputs[0] : spec.outputs[0]));
  if (!forward) return MakeGrad(block);
  // Of bf16 the bits.
  return ir::DTypeBytes(spec.outputs[0].dtype) == 2
             ? MakeForward<uint16_t>(block, IgnoredId(spec.attrs))
             : MakeForward<float>(block, IgnoredId(spec.attrs));
}

}  // namespace meshwright::ops::cpu
