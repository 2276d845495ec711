#include "ops/cpu/cpu.h"

#include <algorithm>
#include <initializer_list>

namespace meshwright::ops::cpu {
namespace {

bool IsNative(const KernelSpec& spec, std::initializer_list<ir::DType> types) {
  const auto native = [&](const ir::TensorType& type) {
    return type.dtype == ir::DType::kI32 ||
           std::find(types.begin(), types.end(), type.dtype) != types.end();
  };
  return spec.outputs[0].dtype != ir::DType::kI32 &&
         std::all_of(spec.outputs.begin(), spec.outputs.end(), native) &&
         std::all_of(spec.inputs.begin(), spec.inputs.end(), native);
}

// Whether the op's kernel reads and writes bf16 itself; others are widened.
bool TakesHalves(ir::Op op) {
  using ir::Op;
  switch (op) {
    case Op::kCast:
    case Op::kEinsum:
    case Op::kFused:
    case Op::kLayerNorm:
    case Op::kRmsNorm:
    case Op::kReduceSum:
    case Op::kRotary:
    case Op::kAttention:
    case Op::kAttentionGrad:
    case Op::kAttentionQkv:
    case Op::kAttentionQkvGrad:
    case Op::kHeadLoss:
    case Op::kHeadLossGrad:
      return true;
    default:
      return false;
  }
}

}  // namespace

KernelResult MakeCpuKernel(const KernelSpec& spec) {
  using ir::Op;
  if (spec.outputs.empty()) return std::unique_ptr<Kernel>();
  const bool halves = TakesHalves(spec.op) && IsNative(spec, {ir::DType::kF32, ir::DType::kBF16});
  if (!halves && !IsNative(spec, {ir::DType::kF32})) return std::unique_ptr<Kernel>();
  switch (spec.op) {
    case Op::kConstant:
    case Op::kRandomNormal:
      return MakeSource(spec);
    case Op::kAdd:
    case Op::kMul:
    case Op::kSub:
    case Op::kScale:
    case Op::kMulScalar:
    case Op::kSum:
    case Op::kGelu:
    case Op::kGeluGrad:
    case Op::kSilu:
    case Op::kSiluGrad:
      return MakeElementwise(spec);
    case Op::kDropout:
      return MakeDropout(spec);
    case Op::kCast:
      return MakeCast(spec);
    case Op::kReduceSum:
    case Op::kSumSquares:
      return MakeReduction(spec);
    case Op::kEinsum:
      return MakeEinsum(spec);
    case Op::kFused:
      return MakeFused(spec);
    case Op::kLayerNorm:
    case Op::kLayerNormGrad:
    case Op::kRmsNorm:
    case Op::kRmsNormGrad:
      return MakeNorm(spec);
    case Op::kEmbedding:
    case Op::kEmbeddingGrad:
      return MakeEmbedding(spec);
    case Op::kRotary:
      return MakeRotary(spec);
    case Op::kAttention:
      return MakeAttention(spec);
    case Op::kAttentionGrad:
      return MakeAttentionGrad(spec);
    case Op::kAttentionQkv:
      return MakeAttentionQkv(spec);
    case Op::kAttentionQkvGrad:
      return MakeAttentionQkvGrad(spec);
    case Op::kCrossEntropy:
    case Op::kCrossEntropyGrad:
    case Op::kLogSumExp:
      return MakeLoss(spec);
    case Op::kHeadLoss:
    case Op::kHeadLossGrad:
      return MakeHeadLoss(spec);
    case Op::kAdamW:
    case Op::kSgd:
      return MakeOptimizer(spec);
    default:
      return std::unique_ptr<Kernel>();
  }
}

}  // namespace meshwright::ops::cpu
