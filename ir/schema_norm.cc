// Norms over the last dim d: leading dims parallel, d whole.
#include <algorithm>

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
  const FactorIndex d = rule.AddWhole(dims.back());
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

GradsOr LayerNormGradient(GradCall& call) {
  MW_TRY(call.RequireOnlyFirstResult());
  const std::vector<ValueId>& out = call.node.outputs;
  const ValueId dy = call.InDType(call.grads[0], call.in_type(0).dtype);
  return call.builder.Add(Op::kLayerNormGrad, {call.in(0), call.in(1), out[1], out[2], dy},
                          GradAttrs(call.node));
}

GradsOr RmsNormGradient(GradCall& call) {
  MW_TRY(call.RequireOnlyFirstResult());
  const ValueId dy = call.InDType(call.grads[0], call.in_type(0).dtype);
  return call.builder.Add(Op::kRmsNormGrad, {call.in(0), call.in(1), call.node.outputs[1], dy},
                          GradAttrs(call.node));
}

}  // namespace

void AddNormSchemas(SchemaTable& table) {
  Row(table, Op::kLayerNorm) = {InferLayerNorm, LayerNormRule,     NormFlops,
                                nullptr,        LayerNormGradient, 3};
  Row(table, Op::kLayerNormGrad) = {
      InferLayerNormGrad, LayerNormGradRule, NormGradFlops, nullptr, nullptr, 3};
  Row(table, Op::kRmsNorm) = {InferRmsNorm, RmsNormRule, NormFlops, nullptr, RmsNormGradient, 2};
  Row(table, Op::kRmsNormGrad) = {InferRmsNormGrad, RmsNormGradRule, NormGradFlops,
                                  nullptr,          nullptr,         2};
}

}  // namespace meshwright::ir
