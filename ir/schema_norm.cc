// Norms over the last dim d: leading dims parallel, d whole but for an expansion.
#include <algorithm>

#include "ir/norm_parts.h"
#include "ir/schema_table.h"

namespace meshwright::ir {
namespace {

TensorType Leading(const TensorType& x, DType dtype) {
  return {dtype, Dims(x.dims.begin(), x.dims.end() - 1)};
}

// x[..., d] and weights [d] at operands first_weight .. last_weight.
Status CheckNormOperands(const OpCall& call, size_t first_weight, size_t last_weight) {
  MW_TRY(call.RequireFloat(0));
  MW_TRY(call.RequireMinRank(0, 1));
  const TensorType& x = call.operands[0];
  for (size_t i = first_weight; i <= last_weight; ++i) {
    if (call.operands[i] != TensorType{x.dtype, {x.dims.back()}}) {
      return call.Error("weights must be [d] of operand 0's dtype, d the last dim of operand 0");
    }
  }
  return call.RealIn("eps", 0, 1);
}

// statistics [...] at operands first .. last, dy like x behind them.
Status CheckGradOperands(const OpCall& call, size_t first, size_t last) {
  const TensorType& x = call.operands[0];
  const TensorType statistic = Leading(x, StatisticDType(x.dtype));
  for (size_t i = first; i <= last; ++i) {
    if (call.operands[i] != statistic)
      return call.Error("statistics must be " + statistic.ToString());
  }
  return call.RequireSameType(0, last + 1);
}

TypesOr InferLayerNorm(const OpCall& call) {
  MW_TRY(call.RequireOperands(3));
  MW_TRY(CheckNormOperands(call, 1, 2));
  const TensorType& x = call.operands[0];
  const TensorType statistic = Leading(x, StatisticDType(x.dtype));
  MW_ASSIGN_OR_RETURN(const DType dtype, call.ResultDType(x.dtype));
  return std::vector<TensorType>{{dtype, x.dims}, statistic, statistic};
}

TypesOr InferLayerNormGrad(const OpCall& call) {
  MW_TRY(call.RequireOperands(5));
  MW_TRY(CheckNormOperands(call, 1, 1));
  MW_TRY(CheckGradOperands(call, 2, 3));
  return std::vector<TensorType>{call.operands[0], call.operands[1], call.operands[1]};
}

TypesOr InferRmsNorm(const OpCall& call) {
  MW_TRY(call.RequireOperands(2));
  MW_TRY(CheckNormOperands(call, 1, 1));
  const TensorType& x = call.operands[0];
  MW_ASSIGN_OR_RETURN(const DType dtype, call.ResultDType(x.dtype));
  return std::vector<TensorType>{{dtype, x.dims}, Leading(x, StatisticDType(x.dtype))};
}

TypesOr InferRmsNormGrad(const OpCall& call) {
  MW_TRY(call.RequireOperands(4));
  MW_TRY(CheckNormOperands(call, 1, 1));
  MW_TRY(CheckGradOperands(call, 2, 2));
  return std::vector<TensorType>{call.operands[0], call.operands[1]};
}

// Every operand and result of the four ops is [..., d], [...] or [d]: told apart by position.
enum class Shape : uint8_t { kFull, kLeading, kWeight };

FactorRule NormRule(const NodeTypes& node, std::initializer_list<Shape> operands,
                    std::initializer_list<Shape> results) {
  RuleBuilder rule(node);
  const Dims& dims = node.operands[0].dims;
  std::vector<FactorIndex> leading;
  for (size_t i = 0; i + 1 < dims.size(); ++i) leading.push_back(rule.Add(dims[i]));
  const FactorIndex d = rule.Add(dims.back(), FactorKind::kWithin);
  std::vector<FactorIndex> full = leading;
  full.push_back(d);
  const auto layout = [&](Shape shape) {
    if (shape == Shape::kFull) return full;
    return shape == Shape::kLeading ? leading : std::vector<FactorIndex>{d};
  };
  size_t i = 0;
  for (Shape shape : operands) rule.Operand(i++, layout(shape));
  i = 0;
  for (Shape shape : results) rule.Result(i++, layout(shape));
  return rule.Finish();
}

FactorRule LayerNormRule(const NodeTypes& node) {
  using enum Shape;
  return NormRule(node, {kFull, kWeight, kWeight}, {kFull, kLeading, kLeading});
}
FactorRule LayerNormGradRule(const NodeTypes& node) {
  using enum Shape;
  return NormRule(node, {kFull, kWeight, kLeading, kLeading, kFull}, {kFull, kWeight, kWeight});
}
FactorRule RmsNormRule(const NodeTypes& node) {
  using enum Shape;
  return NormRule(node, {kFull, kWeight}, {kFull, kLeading});
}
FactorRule RmsNormGradRule(const NodeTypes& node) {
  using enum Shape;
  return NormRule(node, {kFull, kWeight, kLeading, kFull}, {kFull, kWeight});
}

double NormFlops(const NodeTypes& node) {
  return 8.0 * static_cast<double>(node.operands[0].elements());
}
double NormGradFlops(const NodeTypes& node) {
  return 14.0 * static_cast<double>(node.operands[0].elements());
}

// What the gradient's op needs of the norm's attributes.
Attrs GradAttrs(const Node& node) { return {{"eps", node.attrs.Real("eps")}}; }

// What the statistics give to x: mean = sum(x)/d, and rstd = (var(x) + eps)^-1/2 has the derivative
// -rstd^3 (x - mean)/d.
ValueId StatisticsGradient(GradCall& call, bool has_mean) {
  Builder& b = call.builder;
  const std::vector<ValueId>& out = call.node.outputs;
  const size_t rstd = has_mean ? 2 : 1;
  TensorType x = call.in_type(0);
  const DType stored = x.dtype;
  x.dtype = StatisticDType(x.dtype);
  const double share = 1.0 / static_cast<double>(x.dims.back());
  std::vector<ValueId> terms;
  if (has_mean && call.grads[1].valid()) {
    terms.push_back(
        BroadcastLast(b, b.AddOne(Op::kScale, {call.grads[1]}, {{"factor", share}}), x));
  }
  if (call.grads[rstd].valid()) {
    const ValueId cube = b.AddOne(Op::kMul, {out[rstd], b.AddOne(Op::kSquare, {out[rstd]})});
    const ValueId weighted = b.AddOne(Op::kMul, {call.grads[rstd], cube});
    const ValueId slope = b.AddOne(Op::kScale, {weighted}, {{"factor", -share}});
    ValueId centred = call.InDType(call.in(0), x.dtype);
    if (has_mean) centred = b.AddOne(Op::kSub, {centred, BroadcastLast(b, out[1], x)});
    terms.push_back(b.AddOne(Op::kMul, {centred, BroadcastLast(b, slope, x)}));
  }
  if (terms.empty()) return ValueId();
  return call.InDType(terms.size() == 1 ? terms[0] : b.AddOne(Op::kSum, terms), stored);
}

GradsOr NormGradient(GradCall& call) {
  const bool has_mean = call.node.op == Op::kLayerNorm;
  const std::vector<ValueId>& out = call.node.outputs;
  std::vector<ValueId> grads(call.node.inputs.size());
  if (call.grads[0].valid()) {
    std::vector<ValueId> operands = {call.in(0), call.in(1)};
    operands.insert(operands.end(), out.begin() + 1, out.end());
    operands.push_back(call.InDType(call.grads[0], call.in_type(0).dtype));
    grads = call.builder.Add(has_mean ? Op::kLayerNormGrad : Op::kRmsNormGrad, operands,
                             GradAttrs(call.node));
  }
  const ValueId of_statistics = StatisticsGradient(call, has_mean);
  if (!of_statistics.valid()) return grads;
  grads[0] =
      grads[0].valid() ? call.builder.AddOne(Op::kSum, {grads[0], of_statistics}) : of_statistics;
  return grads;
}

std::vector<ValueId> DecomposeNormGrad(Builder& b, const Node& node) {
  return NormGradInParts(b, node.op, node.inputs, {.elements = b.type(node.inputs[0]).dims.back()});
}

GradsOr NormGradGradient(GradCall& call) { return DecomposedGradient(call, DecomposeNormGrad); }

}  // namespace

void AddNormSchemas(SchemaTable& table) {
  Row(table, Op::kLayerNorm) = {InferLayerNorm, LayerNormRule, NormFlops, nullptr, NormGradient, 3};
  Row(table, Op::kLayerNormGrad) = {
      InferLayerNormGrad, LayerNormGradRule, NormGradFlops, nullptr, NormGradGradient, 3};
  Row(table, Op::kRmsNorm) = {InferRmsNorm, RmsNormRule, NormFlops, nullptr, NormGradient, 2};
  Row(table, Op::kRmsNormGrad) = {InferRmsNormGrad, RmsNormGradRule,  NormGradFlops,
                                  nullptr,          NormGradGradient, 2};
}

}  // namespace meshwright::ir
