// attention: kernels over dense [b, s, h, e] tensors.
#include "ops/cpu/attention.h"

#include <type_traits>

#include "ops/cpu/cpu.h"

namespace meshwright::ops::cpu {
namespace {

template <typename T>
HeadsView<T> QueryView(const AttentionShape& shape, const Tensor& tensor) {
  return {tensor.as<std::remove_const_t<T>>(), shape.s * shape.q_stride(), shape.q_stride(),
          shape.e};
}

template <typename T>
HeadsView<T> KeyView(const AttentionShape& shape, const Tensor& tensor) {
  return {tensor.as<std::remove_const_t<T>>(), shape.keys * shape.kv_stride(), shape.kv_stride(),
          shape.e};
}

template <typename T>
AttentionTensors<T> DenseTensors(const AttentionShape& shape, Inputs inputs, Outputs outputs) {
  AttentionTensors<T> tensors;
  tensors.q = QueryView<const T>(shape, inputs[0]);
  tensors.k = KeyView<const T>(shape, inputs[1]);
  tensors.v = KeyView<const T>(shape, inputs[2]);
  tensors.o = QueryView<T>(shape, outputs[0]);
  tensors.lse = outputs[1].as<float>();
  return tensors;
}

template <typename T>
AttentionGradTensors<T> DenseGradTensors(const AttentionShape& shape, Inputs inputs,
                                         Outputs outputs) {
  AttentionGradTensors<T> tensors;
  tensors.q = QueryView<const T>(shape, inputs[0]);
  tensors.k = KeyView<const T>(shape, inputs[1]);
  tensors.v = KeyView<const T>(shape, inputs[2]);
  tensors.o = QueryView<const T>(shape, inputs[3]);
  tensors.lse = inputs[4].as<float>();
  tensors.grad = QueryView<const T>(shape, inputs[5]);
  tensors.dq = QueryView<T>(shape, outputs[0]);
  tensors.dk = KeyView<T>(shape, outputs[1]);
  tensors.dv = KeyView<T>(shape, outputs[2]);
  return tensors;
}

template <typename T>
KernelResult MakeDense(const AttentionCase& attention) {
  return MakeFunctionKernel(
      [attention](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        RunAttention({attention, context, SegmentsOf(inputs, 3)},
                     DenseTensors<T>(attention.shape, inputs, outputs));
        return {};
      });
}

template <typename T>
KernelResult MakeDenseGrad(const AttentionCase& attention) {
  return MakeFunctionKernel(
      [attention](const RunContext& context, Inputs inputs, Outputs outputs) -> Status {
        RunAttentionGrad({attention, context, SegmentsOf(inputs, 6)},
                         DenseGradTensors<T>(attention.shape, inputs, outputs));
        return {};
      });
}

}  // namespace

KernelResult MakeAttention(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const AttentionShape shape, AttentionShapeOf(spec));
  MW_ASSIGN_OR_RETURN(const AttentionDropout dropout, AttentionDropout::Of(spec));
  const bool half = spec.inputs[0].dtype == ir::DType::kBF16;
  const AttentionCase attention(shape, dropout);
  return half ? MakeDense<uint16_t>(attention) : MakeDense<float>(attention);
}

KernelResult MakeAttentionGrad(const KernelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const AttentionShape shape, AttentionShapeOf(spec));
  MW_ASSIGN_OR_RETURN(const AttentionDropout dropout, AttentionDropout::Of(spec));
  const bool half = spec.inputs[0].dtype == ir::DType::kBF16;
  const AttentionCase attention(shape, dropout);
  return half ? MakeDenseGrad<uint16_t>(attention) : MakeDenseGrad<float>(attention);
}

}  // namespace meshwright::ops::cpu
