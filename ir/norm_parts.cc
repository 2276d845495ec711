#include "ir/norm_parts.h"

#include "ir/schema_table.h"

namespace meshwright::ir {
namespace {

// The mean over the whole width of x, which has a part of it.
ValueId Mean(Builder& b, ValueId x, const NormWidth& width) {
  const double share = 1.0 / static_cast<double>(width.elements);
  const ValueId part = SumLast(b, x);
  const ValueId sum = width.sum_parts ? width.sum_parts(b, part) : part;
  return b.AddOne(Op::kScale, {sum}, {{"factor", share}});
}

}  // namespace

std::vector<ValueId> NormInParts(Builder& b, Op op, const Attrs& attrs, DType y_dtype,
                                 const std::vector<ValueId>& operands, const NormWidth& width) {
  const TensorType x = b.type(operands[0]);
  const TensorType wide{StatisticDType(x.dtype), x.dims};
  const auto weight = [&](size_t at) { return InDType(b, operands[at], wide.dtype); };
  ValueId centred = InDType(b, operands[0], wide.dtype);
  std::vector<ValueId> statistics;
  if (op == Op::kLayerNorm) {
    statistics.push_back(Mean(b, centred, width));
    centred = b.AddOne(Op::kSub, {centred, BroadcastLast(b, statistics[0], wide)});
  }
  const ValueId variance = Mean(b, b.AddOne(Op::kSquare, {centred}), width);
  const ValueId shifted = b.AddOne(Op::kShift, {variance}, {{"value", attrs.Real("eps")}});
  statistics.push_back(b.AddOne(Op::kRsqrt, {shifted}));
  const ValueId scale = BroadcastLast(b, statistics.back(), wide);
  ValueId y = b.AddOne(Op::kMul, {b.AddOne(Op::kMul, {centred, scale}), weight(1)});
  if (op == Op::kLayerNorm) y = b.AddOne(Op::kAdd, {y, weight(2)});
  std::vector<ValueId> results = {InDType(b, y, y_dtype)};
  results.insert(results.end(), statistics.begin(), statistics.end());
  return results;
}

// With normalized = (x - mean) rstd and v = dy w:
// dx = rstd (v - mean(v) - normalized mean(v normalized)), without the second term where there is
// no mean. dw and db are sums over the rows.
std::vector<ValueId> NormGradInParts(Builder& b, Op op, const std::vector<ValueId>& operands,
                                     const NormWidth& width) {
  const bool has_mean = op == Op::kLayerNormGrad;
  const TensorType x = b.type(operands[0]);
  const TensorType w = b.type(operands[1]);
  const TensorType wide{StatisticDType(x.dtype), x.dims};
  const auto mean_along = [&](ValueId value) {
    return BroadcastLast(b, Mean(b, value, width), wide);
  };
  ValueId centred = InDType(b, operands[0], wide.dtype);
  if (has_mean) centred = b.AddOne(Op::kSub, {centred, BroadcastLast(b, operands[2], wide)});
  const ValueId rstd = BroadcastLast(b, operands[has_mean ? 3 : 2], wide);
  const ValueId normalized = b.AddOne(Op::kMul, {centred, rstd});
  const ValueId dy = InDType(b, operands.back(), wide.dtype);
  const ValueId v = b.AddOne(Op::kMul, {dy, InDType(b, operands[1], wide.dtype)});
  const ValueId along = mean_along(b.AddOne(Op::kMul, {v, normalized}));
  ValueId rest = b.AddOne(Op::kSub, {v, b.AddOne(Op::kMul, {normalized, along})});
  if (has_mean) rest = b.AddOne(Op::kSub, {rest, mean_along(v)});
  const ValueId of_w = b.AddOne(Op::kMul, {dy, normalized});
  std::vector<ValueId> results = {InDType(b, b.AddOne(Op::kMul, {rest, rstd}), x.dtype),
                                  InDType(b, ReduceToSuffix(b, of_w, w), w.dtype)};
  if (has_mean) results.push_back(InDType(b, ReduceToSuffix(b, dy, w), w.dtype));
  return results;
}

}  // namespace meshwright::ir
