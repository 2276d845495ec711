#include "ops/cuda/cuda.h"

#include <algorithm>

#include "ir/fused.h"
#include "ops/cuda/library_kernels.h"

namespace meshwright::ops::cuda {
namespace {

// Ops that move bytes, whatever they are.
bool TakesAnyType(ir::Op op) {
  using ir::Op;
  switch (op) {
    case Op::kFeed:
    case Op::kSlice:
    case Op::kPad:
    case Op::kReshape:
    case Op::kTranspose:
    case Op::kShardSlice:
      return true;
    default:
      return false;
  }
}

bool HasOurTypes(const KernelSpec& spec) {
  const auto ours = [](const ir::TensorType& type) {
    return type.dtype == ir::DType::kI32 || FloatTypeOf(type.dtype).has_value();
  };
  return std::all_of(spec.inputs.begin(), spec.inputs.end(), ours) &&
         std::all_of(spec.outputs.begin(), spec.outputs.end(), ours);
}

// By libraries and generated code.
KernelResult MakeOfLibrary(const Maker& maker) {
  using ir::Op;
  const KernelSpec& spec = maker.spec;
  // Dropout alone is a kernel of our own.
  if (ir::IsElementwise(spec.op) && spec.op != Op::kDropout) {
    return MakeChain(spec, maker.device, maker.toolkit);
  }
  switch (spec.op) {
    case Op::kEinsum:
      return MakeEinsum(spec, maker.device, maker.toolkit);
    case Op::kFused:
      return MakeFused(spec, maker.device, maker.toolkit);
    case Op::kHeadLoss:
    case Op::kHeadLossGrad:
      return MakeHeadLoss(spec, maker.device, maker.toolkit);
    default:
      return std::unique_ptr<Kernel>();
  }
}

}  // namespace

KernelResult MakeCudaKernel(const KernelSpec& spec, device::Device& device, Toolkit& toolkit) {
  using ir::Op;
  if (spec.outputs.empty()) return std::unique_ptr<Kernel>();
  if (!TakesAnyType(spec.op) && !HasOurTypes(spec)) return std::unique_ptr<Kernel>();
  const Maker maker{spec, static_cast<device::cuda::CudaDevice&>(device), toolkit};
  switch (spec.op) {
    case Op::kFeed:
      return MakeFeed(maker);
    case Op::kConstant:
    case Op::kRandomNormal:
    case Op::kLearningRate:
      return MakeSource(maker);
    case Op::kDropout:
      return MakeDropout(maker);
    case Op::kSlice:
    case Op::kPad:
    case Op::kReshape:
    case Op::kTranspose:
    case Op::kShardSlice:
      return MakeStructure(maker);
    case Op::kReduceSum:
    case Op::kSumSquares:
      return MakeReduction(maker);
    case Op::kLayerNorm:
    case Op::kLayerNormGrad:
    case Op::kRmsNorm:
    case Op::kRmsNormGrad:
      return MakeNorm(maker);
    case Op::kEmbedding:
    case Op::kEmbeddingGrad:
      return MakeEmbedding(maker);
    case Op::kSegments:
    case Op::kRotary:
      return MakePosition(maker);
    case Op::kAttention:
    case Op::kAttentionGrad:
    case Op::kAttentionQkv:
    case Op::kAttentionQkvGrad:
      return MakeAttention(maker);
    case Op::kCrossEntropy:
    case Op::kCrossEntropyGrad:
    case Op::kLogSumExp:
    case Op::kPick:
    case Op::kNll:
      return MakeLoss(maker);
    case Op::kClipMultiplier:
    case Op::kAdamW:
    case Op::kSgd:
    case Op::kDivide:
      return MakeOptimizer(maker);
    default:
      return MakeOfLibrary(maker);
  }
}

}  // namespace meshwright::ops::cuda
