// attention for f32: kernels over dense [b, s, h, e] tensors.
#include "ops/cpu/attention.h"

#include "ops/cpu/cpu.h"

namespace meshwright::ops::cpu {
namespace {

template <typename T>
HeadsView<T> QueryView(const AttentionShape& shape, const Tensor& tensor) {
  return {tensor.as<float>(), shape.s * shape.q_stride(), shape.q_stride(), shape.e};
}

template <typename T>
HeadsView<T> KeyView(const AttentionShape& shape, const Tensor& tensor) {
  return {tensor.as<float>(), shape.s * shape.kv_stride(), shape.kv_stride(), shape.e};
}

AttentionTensors DenseTensors(const AttentionShape& shape, Inputs inputs, Outputs outputs) {
  AttentionTensors tensors;
  tensors.q = QueryView<const float>(shape, inputs[0]);
  tensors.k = KeyView<const float>(shape, inputs[1]);
  tensors.v = KeyView<const float>(shape, inputs[2]);
  tensors.o = QueryView<float>(shape, outputs[0]);
  tensors.lse = outputs[1].as<float>();
  return tensors;
}

AttentionGradTensors DenseGradTensors(const AttentionShape& shape, Inputs inputs, Outputs outputs) {
  AttentionGradTensors tensors;
  tensors.q = QueryView<const float>(shape, inputs[0]);
  tensors.k = KeyView<const float>(shape, inputs[1]);
  tensors.v = KeyView<const float>(shape, inputs[2]);
  tensors.o = QueryView<const float>(shape, inputs[3]);
  tensors.lse = inputs[4].as<float>();
  tensors.grad = QueryView<const float>(shape, inputs[5]);
  tensors.dq = QueryView<float>(shape, outputs[0]);
  tensors.dk = KeyView<float>(shape, outputs[1]);
  tensors.dv = KeyView<float>(shape, outputs[2]);
  return tensors;
}

}  // namespace

KernelResult MakeAttention(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const AttentionShape shape, AttentionShapeOf(spec));
  MW_ASSIGN_OR_RETURN(const AttentionDropout dropout, AttentionDropout::Of(spec));
  return MakeFunctionKernel(
      [shape, dropout](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        RunAttention({shape, dropout, context}, DenseTensors(shape, inputs, outputs));
        return {};
      });
}

KernelResult MakeAttentionGrad(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const AttentionShape shape, AttentionShapeOf(spec));
  MW_ASSIGN_OR_RETURN(const AttentionDropout dropout, AttentionDropout::Of(spec));
  return MakeFunctionKernel(
      [shape, dropout](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        RunAttentionGrad({shape, dropout, context}, DenseGradTensors(shape, inputs, outputs));
        return {};
      });
}

}  // namespace meshwright::ops::cpu
