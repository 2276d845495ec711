// attention_qkv: q, k and v, and their gradients, are slices of one tensor and are read and written
// in place.
#include "ops/cpu/attention.h"

#include "ops/cpu/cpu.h"

namespace meshwright::ops::cpu {
namespace {

// Slice `index` of [b, s, 3, h, e] as [b, s, h, e].
template <typename T>
HeadsView<T> SliceView(const AttentionShape& shape, const Tensor& tensor, int64_t index) {
  const int64_t row = 3 * shape.q_stride();
  return {tensor.as<float>() + index * shape.q_stride(), shape.s * row, row, shape.e};
}

template <typename T>
HeadsView<T> DenseView(const AttentionShape& shape, const Tensor& tensor) {
  return {tensor.as<float>(), shape.s * shape.q_stride(), shape.q_stride(), shape.e};
}

}  // namespace

KernelResult MakeAttentionQkv(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const AttentionShape shape, AttentionQkvShapeOf(spec));
  MW_ASSIGN_OR_RETURN(const AttentionDropout dropout, AttentionDropout::Of(spec, spec.outputs[0]));
  return MakeFunctionKernel(
      [shape, dropout](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        AttentionTensors tensors;
        tensors.q = SliceView<const float>(shape, inputs[0], 0);
        tensors.k = SliceView<const float>(shape, inputs[0], 1);
        tensors.v = SliceView<const float>(shape, inputs[0], 2);
        tensors.o = DenseView<float>(shape, outputs[0]);
        tensors.lse = outputs[1].as<float>();
        RunAttention({shape, dropout, context}, tensors);
        return {};
      });
}

KernelResult MakeAttentionQkvGrad(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const AttentionShape shape, AttentionQkvShapeOf(spec));
  MW_ASSIGN_OR_RETURN(const AttentionDropout dropout, AttentionDropout::Of(spec, spec.inputs[1]));
  return MakeFunctionKernel(
      [shape, dropout](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        AttentionGradTensors tensors;
        tensors.q = SliceView<const float>(shape, inputs[0], 0);
        tensors.k = SliceView<const float>(shape, inputs[0], 1);
        tensors.v = SliceView<const float>(shape, inputs[0], 2);
        tensors.o = DenseView<const float>(shape, inputs[1]);
        tensors.lse = inputs[2].as<float>();
        tensors.grad = DenseView<const float>(shape, inputs[3]);
        tensors.dq = SliceView<float>(shape, outputs[0], 0);
        tensors.dk = SliceView<float>(shape, outputs[0], 1);
        tensors.dv = SliceView<float>(shape, outputs[0], 2);
        RunAttentionGrad({shape, dropout, context}, tensors);
        return {};
      });
}

}  // namespace meshwright::ops::cpu
