// embedding and its gradient: rows of a table by id; the table may be split by rows and columns.
#include <algorithm>

#include "ops/reference/reference.h"
#include "ops/token_ids.h"

namespace meshwright::ops::reference {
namespace {

template <typename T>
KernelResult MakeForward(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const ShardBlock block, spec.BlockOf(spec.inputs[0]));
  return MakeFunctionKernel([block, ignored = IgnoredId(spec.attrs)](const RunContext& context,
                                                                     Inputs inputs,
                                                                     Outputs outputs) -> Status {
    const int32_t* ids = inputs[1].as<int32_t>();
    const int64_t count = inputs[1].elements();
    const int64_t width = block.local_dims[1];
    const int64_t first = block.Start(0, context.microbatch);
    MW_TRY(CheckTokenIds("embedding", ids, count, block.global_dims[0], ignored));
    for (int64_t i = 0; i < count; ++i) {
      T* out = outputs[0].as<T>() + i * width;
      const int64_t row = ids[i] - first;
      if (row < 0 || row >= block.local_dims[0] || ids[i] == ignored) {
        std::fill_n(out, width, T{0});
      } else {
        std::copy_n(inputs[0].as<T>() + row * width, width, out);
      }
    }
    return {};
  });
}

template <typename T>
KernelResult MakeGrad(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const ShardBlock block, spec.BlockOf(spec.outputs[0]));
  return MakeFunctionKernel(
      [block](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        const int32_t* ids = inputs[0].as<int32_t>();
        const int64_t count = inputs[0].elements();
        const int64_t width = block.local_dims[1];
        const int64_t first = block.Start(0, context.microbatch);
        MW_TRY(CheckTokenIds("embedding_grad", ids, count, block.global_dims[0]));
        if (inputs.size() < 3) {
          std::fill_n(outputs[0].as<T>(), outputs[0].elements(), T{0});
        } else if (inputs[2].data != outputs[0].data) {
          std::copy_n(inputs[2].as<T>(), inputs[2].elements(), outputs[0].as<T>());
        }
        for (int64_t i = 0; i < count; ++i) {
          const int64_t row = ids[i] - first;
          if (row < 0 || row >= block.local_dims[0]) continue;
          const T* dy = inputs[1].as<T>() + i * width;
          T* target = outputs[0].as<T>() + row * width;
          for (int64_t j = 0; j < width; ++j) target[j] += dy[j];
        }
        return {};
      });
}

}  // namespace

KernelResult MakeEmbedding(const KernelSpec& spec) {
  return ForFloatType(spec, spec.outputs[0].dtype, [&](auto zero) -> KernelResult {
    using T = decltype(zero);
    return spec.op == ir::Op::kEmbedding ? MakeForward<T>(spec) : MakeGrad<T>(spec);
  });
}

}  // namespace meshwright::ops::reference
