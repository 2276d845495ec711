#include "ops/reference/reference.h"

#include <fmt/format.h>

namespace meshwright::ops::reference {
namespace {

// Sources, elementwise ops and what moves values; null for the others.
KernelResult MakePrimitive(const KernelSpec& spec) {
  using ir::Op;
  switch (spec.op) {
    case Op::kFeed:
    case Op::kConstant:
    case Op::kRandomNormal:
    case Op::kLearningRate:
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
    case Op::kDropout:
      return MakeElementwise(spec);
    case Op::kCast:
      return MakeCast(spec);
    case Op::kSlice:
    case Op::kPad:
    case Op::kReshape:
    case Op::kTranspose:
    case Op::kReduceSum:
    case Op::kSumSquares:
    case Op::kShardSlice:
      return MakeStructure(spec);
    default:
      return std::unique_ptr<Kernel>();
  }
}

}  // namespace

KernelResult MakeReferenceKernel(const KernelSpec& spec) {
  using ir::Op;
  MW_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> primitive, MakePrimitive(spec));
  if (primitive) return primitive;
  switch (spec.op) {
    case Op::kEinsum:
      return MakeEinsum(spec);
    case Op::kLayerNorm:
    case Op::kLayerNormGrad:
    case Op::kRmsNorm:
    case Op::kRmsNormGrad:
      return MakeNorm(spec);
    case Op::kEmbedding:
    case Op::kEmbeddingGrad:
      return MakeEmbedding(spec);
    case Op::kSegments:
      return MakeSegments(spec);
    case Op::kRotary:
      return MakeRotary(spec);
    case Op::kAttention:
    case Op::kAttentionGrad:
      return MakeAttention(spec);
    case Op::kAttentionQkv:
    case Op::kAttentionQkvGrad:
      return MakeAttentionQkv(spec);
    case Op::kCrossEntropy:
    case Op::kCrossEntropyGrad:
    case Op::kLogSumExp:
    case Op::kPick:
    case Op::kNll:
      return MakeLoss(spec);
    case Op::kHeadLoss:
    case Op::kHeadLossGrad:
      return MakeHeadLoss(spec);
    case Op::kClipMultiplier:
    case Op::kAdamW:
    case Op::kSgd:
    case Op::kDivide:
      return MakeOptimizer(spec);
    default:
      break;
  }
  return Fail(Unimplemented(fmt::format(
      "{} is not a kernel: params and inputs are bound, collectives are run by the executor",
      spec.ToString())));
}

}  // namespace meshwright::ops::reference
