#include "ops/kernel_table.h"

#include <algorithm>
#include <array>

#include "ir/elementwise.h"
#include "ops/cpu/cpu.h"
#include "ops/cuda/cuda.h"
#include "ops/reference/reference.h"

namespace meshwright::ops {
namespace {

using ir::Op;
using KernelRows = std::array<KernelRow, ir::kOpCount>;

constexpr bool kHalves = true;
constexpr bool kAnyType = true;

KernelRow& Row(KernelRows& rows, Op op) { return rows[static_cast<size_t>(op)]; }

void AddElementwise(KernelRows& rows) {
  for (const ir::ElementwiseRow& row : ir::ElementwiseRows()) {
    Row(rows, row.op) = {reference::MakeFormula, cpu::MakeFormula, cuda::MakeChain};
  }
  Row(rows, Op::kSum) = {reference::MakeSum, cpu::MakeSum, cuda::MakeChain};
  Row(rows, Op::kCast) = {reference::MakeCast, cpu::MakeCast, cuda::MakeChain, kHalves, kAnyType};
  Row(rows, Op::kDropout) = {reference::MakeDropout, cpu::MakeDropout, cuda::MakeDropout};
  Row(rows, Op::kNoise) = {reference::MakeNoise, cpu::MakeNoise, cuda::MakeNoise};
}

void AddSources(KernelRows& rows) {
  Row(rows, Op::kFeed) = {reference::MakeSource, nullptr, cuda::MakeFeed, false, kAnyType};
  Row(rows, Op::kConstant) = {reference::MakeSource, cpu::MakeSource, cuda::MakeSource, kHalves};
  Row(rows, Op::kRandomNormal) = {reference::MakeSource, cpu::MakeSource, cuda::MakeSource};
  Row(rows, Op::kLearningRate) = {reference::MakeSource, nullptr, cuda::MakeSource};
}

void AddStructure(KernelRows& rows) {
  const auto mover = [&](Op op, KernelResult (*reference)(const KernelSpec&)) {
    Row(rows, op) = {reference, nullptr, cuda::MakeStructure, false, kAnyType};
  };
  mover(Op::kSlice, reference::MakeSlice);
  mover(Op::kPad, reference::MakePad);
  mover(Op::kConcat, reference::MakeConcat);
  mover(Op::kReshape, reference::MakeReshape);
  mover(Op::kTranspose, reference::MakeTranspose);
  mover(Op::kBroadcast, reference::MakeBroadcast);
  mover(Op::kShardSlice, reference::MakeShardSlice);
  Row(rows, Op::kReduceSum) = {reference::MakeReduceSum, cpu::MakeReduction, cuda::MakeReduction,
                               kHalves};
  Row(rows, Op::kReduceMax) = {reference::MakeReduceMax, nullptr, cuda::MakeReduction};
  Row(rows, Op::kSumSquares) = {reference::MakeSumSquares, cpu::MakeReduction, cuda::MakeReduction,
                                kHalves};
  Row(rows, Op::kGather) = {reference::MakeGather, nullptr, cuda::MakeGather, false, kAnyType};
  Row(rows, Op::kScatterAdd) = {reference::MakeScatterAdd, nullptr, cuda::MakeScatterAdd};
  Row(rows, Op::kOneHot) = {reference::MakeOneHot, nullptr, cuda::MakeOneHot};
  Row(rows, Op::kTopK) = {reference::MakeTopK, nullptr, cuda::MakeTopK};
}

void AddProducts(KernelRows& rows) {
  Row(rows, Op::kEinsum) = {reference::MakeEinsum, cpu::MakeEinsum, cuda::MakeEinsum, kHalves};
  Row(rows, Op::kExpertSlots) = {reference::MakeExpertSlots, nullptr, cuda::MakeExpertSlots};
  for (const Op op : {Op::kDispatch, Op::kCombine, Op::kCombineGradWeights}) {
    Row(rows, op) = {reference::MakeDispatch, cpu::MakeDispatch, cuda::MakeDispatch, kHalves};
  }
  for (const Op op : {Op::kGroupedMatmul, Op::kGroupedMatmulGrad}) {
    Row(rows, op) = {reference::MakeGroupedMatmul, cpu::MakeGroupedMatmul, cuda::MakeGroupedMatmul,
                     kHalves};
  }
  Row(rows, Op::kFused) = {nullptr, cpu::MakeFused, cuda::MakeFused, kHalves};
  for (const Op op : {Op::kConv2d, Op::kConv2dGradInput, Op::kConv2dGradKernel}) {
    Row(rows, op) = {reference::MakeConv, cpu::MakeConv, nullptr};
  }
  for (const Op op : {Op::kWindowArgmax, Op::kAvgPool, Op::kAvgPoolGrad}) {
    Row(rows, op) = {reference::MakePool, nullptr, nullptr};
  }
  Row(rows, Op::kAttention) = {reference::MakeAttention, cpu::MakeAttention, cuda::MakeAttention,
                               kHalves};
  Row(rows, Op::kAttentionGrad) = {reference::MakeAttention, cpu::MakeAttentionGrad,
                                   cuda::MakeAttention, kHalves};
  Row(rows, Op::kAttentionQkv) = {reference::MakeAttentionQkv, cpu::MakeAttentionQkv,
                                  cuda::MakeAttention, kHalves};
  Row(rows, Op::kAttentionQkvGrad) = {reference::MakeAttentionQkv, cpu::MakeAttentionQkvGrad,
                                      cuda::MakeAttention, kHalves};
  Row(rows, Op::kPagedAttention) = {reference::MakePagedAttention, cpu::MakePagedAttention, nullptr,
                                    kHalves};
}

void AddRows(KernelRows& rows) {
  for (const Op op : {Op::kLayerNorm, Op::kRmsNorm}) {
    Row(rows, op) = {reference::MakeNorm, cpu::MakeNorm, cuda::MakeNorm, kHalves};
  }
  for (const Op op : {Op::kLayerNormGrad, Op::kRmsNormGrad}) {
    Row(rows, op) = {reference::MakeNorm, cpu::MakeNorm, cuda::MakeNorm};
  }
  for (const Op op : {Op::kSoftmax, Op::kLogSoftmax}) {
    Row(rows, op) = {reference::MakeSoftmax, cpu::MakeSoftmax, cuda::MakeSoftmax};
  }
  Row(rows, Op::kEmbedding) = {reference::MakeEmbedding, cpu::MakeEmbedding, cuda::MakeEmbedding,
                               kHalves};
  Row(rows, Op::kEmbeddingGrad) = {reference::MakeEmbedding, cpu::MakeEmbedding,
                                   cuda::MakeEmbedding};
  Row(rows, Op::kSegments) = {reference::MakeSegments, nullptr, cuda::MakePosition};
  Row(rows, Op::kRotary) = {reference::MakeRotary, cpu::MakeRotary, cuda::MakePosition, kHalves};
}

void AddLosses(KernelRows& rows) {
  for (const Op op : {Op::kCrossEntropy, Op::kCrossEntropyGrad, Op::kLogSumExp}) {
    Row(rows, op) = {reference::MakeLoss, cpu::MakeLoss, cuda::MakeLoss};
  }
  for (const Op op : {Op::kPick, Op::kNll}) {
    Row(rows, op) = {reference::MakeLoss, nullptr, cuda::MakeLoss};
  }
  for (const Op op : {Op::kHeadLoss, Op::kHeadLossGrad}) {
    Row(rows, op) = {reference::MakeHeadLoss, cpu::MakeHeadLoss, cuda::MakeHeadLoss, kHalves};
  }
  for (const Op op : {Op::kAdamW, Op::kSgd}) {
    Row(rows, op) = {reference::MakeOptimizer, cpu::MakeOptimizer, cuda::MakeOptimizer, kHalves};
  }
  Row(rows, Op::kClipMultiplier) = {reference::MakeOptimizer, nullptr, cuda::MakeOptimizer};
}

bool IsNative(const KernelSpec& spec, bool halves) {
  const auto native = [&](const ir::TensorType& type) {
    return type.dtype == ir::DType::kI32 || type.dtype == ir::DType::kF32 ||
           (halves && type.dtype == ir::DType::kBF16);
  };
  return spec.outputs[0].dtype != ir::DType::kI32 &&
         std::all_of(spec.outputs.begin(), spec.outputs.end(), native) &&
         std::all_of(spec.inputs.begin(), spec.inputs.end(), native);
}

}  // namespace

const KernelRow& KernelsOf(Op op) {
  static const KernelRows table = [] {
    KernelRows rows;
    AddElementwise(rows);
    AddSources(rows);
    AddStructure(rows);
    AddProducts(rows);
    AddRows(rows);
    AddLosses(rows);
    return rows;
  }();
  return table[static_cast<size_t>(op)];
}

KernelResult MakeCpuKernel(const KernelSpec& spec) {
  const KernelRow& row = KernelsOf(spec.op);
  if (row.cpu == nullptr || spec.outputs.empty() || !IsNative(spec, row.cpu_halves)) {
    return std::unique_ptr<Kernel>();
  }
  return row.cpu(spec);
}

}  // namespace meshwright::ops
