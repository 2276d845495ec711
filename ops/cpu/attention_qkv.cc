// attention_qkv: q, k and v, and their gradients, are slices of one tensor and are read and written
// in place.
#include "ops/cpu/attention.h"

#include <type_traits>

#include "ops/cpu/cpu.h"

namespace meshwright::ops::cpu {
namespace {

// Slice `index` of [b, s, 3, h, e] as [b, s, h, e].
template <typename T>
HeadsView<T> SliceView(const AttentionShape& shape, const Tensor& tensor, int64_t index) {
  const int64_t row = 3 * shape.q_stride();
  return {tensor.as<std::remove_const_t<T>>() + index * shape.q_stride(), shape.s * row, row,
          shape.e};
}

template <typename T>
HeadsView<T> DenseView(const AttentionShape& shape, const Tensor& tensor) {
  return {tensor.as<std::remove_const_t<T>>(), shape.s * shape.q_stride(), shape.q_stride(),
          shape.e};
}

template <typename T>
KernelResult MakeSliced(const AttentionCase& attention) {
  return MakeFunctionKernel(
      [attention](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        AttentionTensors<T> tensors;
        const AttentionShape& shape = attention.shape;
        tensors.q = SliceView<const T>(shape, inputs[0], 0);
        tensors.k = SliceView<const T>(shape, inputs[0], 1);
        tensors.v = SliceView<const T>(shape, inputs[0], 2);
        tensors.o = DenseView<T>(shape, outputs[0]);
        tensors.lse = outputs[1].as<float>();
        RunAttention({attention, context, SegmentsOf(inputs, 1)}, tensors);
        return {};
      });
}

template <typename T>
KernelResult MakeSlicedGrad(const AttentionCase& attention) {
  return MakeFunctionKernel(
      [attention](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        AttentionGradTensors<T> tensors;
        const AttentionShape& shape = attention.shape;
        tensors.q = SliceView<const T>(shape, inputs[0], 0);
        tensors.k = SliceView<const T>(shape, inputs[0], 1);
        tensors.v = SliceView<const T>(shape, inputs[0], 2);
        tensors.o = DenseView<const T>(shape, inputs[1]);
        tensors.lse = inputs[2].as<float>();
        tensors.grad = DenseView<const T>(shape, inputs[3]);
        tensors.dq = SliceView<T>(shape, outputs[0], 0);
        tensors.dk = SliceView<T>(shape, outputs[0], 1);
        tensors.dv = SliceView<T>(shape, outputs[0], 2);
        RunAttentionGrad({attention, context, SegmentsOf(inputs, 4)}, tensors);
        return {};
      });
}

}  // namespace

KernelResult MakeAttentionQkv(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const AttentionShape shape, AttentionQkvShapeOf(spec));
  MW_ASSIGN_OR_RETURN(const AttentionDropout dropout, AttentionDropout::Of(spec, spec.outputs[0]));
  const bool half = spec.inputs[0].dtype == ir::DType::kBF16;
  const AttentionCase attention(shape, dropout);
  return half ? MakeSliced<uint16_t>(attention) : MakeSliced<float>(attention);
}

KernelResult MakeAttentionQkvGrad(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const AttentionShape shape, AttentionQkvShapeOf(spec));
  MW_ASSIGN_OR_RETURN(const AttentionDropout dropout, AttentionDropout::Of(spec, spec.inputs[1]));
  const bool half = spec.inputs[0].dtype == ir::DType::kBF16;
  const AttentionCase attention(shape, dropout);
  return half ? MakeSlicedGrad<uint16_t>(attention) : MakeSlicedGrad<float>(attention);
}

}  // namespace meshwright::ops::cpu
