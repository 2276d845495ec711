#include "planner/padded_ops.h"

#include <algorithm>

#include "planner/choosing.h"

namespace meshwright::planner {
namespace {

using ir::FactorKind;
using ir::Op;

// An element of a result comes from those of its own place along a parallel factor.
bool IsKnown(Op op) {
  switch (op) {
    case Op::kAdd:
    case Op::kMul:
    case Op::kSub:
    case Op::kMaximum:
    case Op::kMinimum:
    case Op::kGate:
    case Op::kScale:
    case Op::kShift:
    case Op::kMulScalar:
    case Op::kCast:
    case Op::kSum:
    case Op::kAbs:
    case Op::kSign:
    case Op::kRelu:
    case Op::kExp:
    case Op::kTanh:
    case Op::kSigmoid:
    case Op::kErf:
    case Op::kSquare:
    case Op::kSoftplus:
    case Op::kGelu:
    case Op::kSilu:
    case Op::kGeluErf:
    case Op::kStopGradient:
    case Op::kSelect:
    case Op::kDropout:
    case Op::kNoise:
    case Op::kSlice:
    case Op::kPad:
    case Op::kConcat:
    case Op::kReshape:
    case Op::kTranspose:
    case Op::kBroadcast:
    case Op::kReduceSum:
    case Op::kEinsum:
    case Op::kGroupedMatmul:
    case Op::kLayerNorm:
    case Op::kRmsNorm:
    case Op::kSoftmax:
    case Op::kLogSoftmax:
    case Op::kRotary:
    case Op::kAttention:
    case Op::kAttentionQkv:
      return true;
    default:
      return false;
  }
}

bool SumsPadding(Op op) {
  switch (op) {
    case Op::kEinsum:
    case Op::kGroupedMatmul:
    case Op::kReduceSum:
    case Op::kSumSquares:
    case Op::kEmbedding:
    case Op::kCrossEntropy:
    case Op::kLogSumExp:
    case Op::kPick:
      return true;
    default:
      return false;
  }
}

// f(0) = 0, and all results are padded where the first operand is.
bool KeepsZero(Op op) {
  switch (op) {
    case Op::kScale:
    case Op::kMulScalar:
    case Op::kCast:
    case Op::kAbs:
    case Op::kSign:
    case Op::kRelu:
    case Op::kTanh:
    case Op::kErf:
    case Op::kSquare:
    case Op::kGelu:
    case Op::kSilu:
    case Op::kGeluErf:
    case Op::kStopGradient:
    case Op::kDropout:
    case Op::kSlice:
    case Op::kPad:
    case Op::kReshape:
    case Op::kTranspose:
    case Op::kBroadcast:
    case Op::kReduceSum:
    case Op::kRmsNorm:
    case Op::kRotary:
    case Op::kAttentionQkv:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool CarriesPadding(const ir::Node& node, const ir::FactorRule& rule, ir::FactorIndex factor) {
  if (IsMinor(rule, factor)) return false;
  switch (rule.factors[static_cast<size_t>(factor)].kind) {
    case FactorKind::kParallel:
      // A table's rows are summed over; along its columns it is as any other op.
      return IsKnown(node.op) || node.op == Op::kEmbedding;
    case FactorKind::kReduced:
      return SumsPadding(node.op);
    default:
      return false;
  }
}

BeforeSum ReadyFor(const ir::Node& node, size_t operand) {
  switch (node.op) {
    case Op::kEmbedding:
    case Op::kPick:
      return BeforeSum::kNothing;
    case Op::kCrossEntropy:
    case Op::kLogSumExp:
      return operand == 0 ? BeforeSum::kMask : BeforeSum::kNothing;
    case Op::kReduceSum:
      return BeforeSum::kCut;
    default:
      return BeforeSum::kZero;
  }
}

bool GivesZeros(const ir::Node& node, const std::vector<OperandPadding>& operands) {
  const auto zero = [](const OperandPadding& each) { return each.zero; };
  switch (node.op) {
    // One factor is enough.
    case Op::kMul:
    case Op::kEinsum:
    case Op::kGroupedMatmul:
      return std::any_of(operands.begin(), operands.end(), zero);
    // Without a value there is nothing to weigh.
    case Op::kAttention:
      return operands[2].zero;
    case Op::kGate:
      return operands[1].zero;
    case Op::kAdd:
    case Op::kSub:
    case Op::kSum:
    case Op::kMaximum:
    case Op::kMinimum:
    case Op::kConcat:
      return std::all_of(operands.begin(), operands.end(), zero);
    case Op::kSelect:
      return operands[1].zero && operands[2].zero;
    case Op::kEmbedding:
      return operands[0].zero;
    default:
      return KeepsZero(node.op) && operands[0].zero;
  }
}

}  // namespace meshwright::planner
