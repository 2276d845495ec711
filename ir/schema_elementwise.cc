// Elementwise ops: every dim is parallel; operands with fewer dims align from the right. Most of
// them are rows of ir/elementwise.cc.
#include <fmt/format.h>

#include <algorithm>

#include "ir/elementwise.h"
#include "ir/schema_table.h"

namespace meshwright::ir {
namespace {

std::vector<TensorType> First(const OpCall& call) { return {call.operands[0]}; }

bool IsSuffix(const Dims& x, const Dims& y) {
  return y.size() <= x.size() && std::equal(y.rbegin(), y.rend(), x.rbegin());
}

Status CheckSuffix(const OpCall& call, size_t x, size_t y) {
  if (call.operands[x].dtype != call.operands[y].dtype) {
    return call.Error("operands must have one dtype");
  }
  if (IsSuffix(call.operands[x].dims, call.operands[y].dims)) return OkStatus();
  return call.Error(
      fmt::format("the shape of operand {} must be a suffix of the shape of operand {}", y, x));
}

bool IsNumber(DType dtype) { return IsFloating(dtype) || dtype == DType::kI32; }

TypesOr InferSelect(const OpCall& call) {
  const TensorType& c = call.operands[0];
  const TensorType& x = call.operands[1];
  if (c != TensorType{DType::kBool, x.dims}) {
    return Fail(call.Error("operand 0 must be bool in the shape of operand 1"));
  }
  MW_TRY(CheckSuffix(call, 1, 2));
  return std::vector<TensorType>{x};
}

Status CheckConstant(const OpCall& call) {
  const char* const name = call.op == Op::kShift ? "value" : "factor";
  if (!call.attrs.Has(name)) {
    return call.Error(fmt::format("needs the real attribute '{}'", name));
  }
  return call.RealIn(name, -1e300, 1e300);
}

// By a row of the table.
TypesOr InferByRow(const OpCall& call) {
  const ElementwiseRow& row = *ElementwiseRowOf(call.op);
  MW_TRY(call.RequireOperands(static_cast<size_t>(row.operands)));
  if (row.takes == Takes::kSelects) return InferSelect(call);
  const DType dtype = call.operands[0].dtype;
  if (row.takes == Takes::kScalar) {
    MW_TRY(call.RequireFloat(0));
    MW_TRY(call.RequireStatisticScalar(1, 0));
    return First(call);
  }
  if (call.op == Op::kScale || call.op == Op::kShift) MW_TRY(CheckConstant(call));
  if (row.operands == 2) MW_TRY(CheckSuffix(call, 0, 1));
  if (row.takes == Takes::kFloats) MW_TRY(call.RequireFloat(0));
  const bool numbers = row.takes == Takes::kNumbers || row.takes == Takes::kCompares;
  if (numbers && !IsNumber(dtype))
    return Fail(call.Error("operands must be floating point or i32"));
  if (row.takes == Takes::kBools && dtype != DType::kBool) {
    return Fail(call.Error("operands must be bool"));
  }
  std::vector<TensorType> types = First(call);
  if (row.takes == Takes::kCompares) types[0].dtype = DType::kBool;
  return types;
}

TypesOr InferSum(const OpCall& call) {
  if (call.operands.empty()) return Fail(call.Error("needs at least one operand"));
  for (size_t i = 1; i < call.operands.size(); ++i) MW_TRY(call.RequireSameType(0, i));
  return First(call);
}

TypesOr InferCast(const OpCall& call) {
  MW_TRY(call.RequireOperands(1));
  std::vector<TensorType> types = First(call);
  if (!call.attrs.Has("dtype")) return Fail(call.Error("needs the attribute 'dtype'"));
  MW_ASSIGN_OR_RETURN(types[0].dtype, call.DTypeOr(types[0].dtype));
  return types;
}

TypesOr InferDropout(const OpCall& call) {
  MW_TRY(call.RequireOperands(1));
  MW_TRY(call.RequireFloat(0));
  MW_TRY(call.RealIn("rate", 0, 0.999999));
  if (call.attrs.Str("name").empty()) return Fail(call.Error("needs a non-empty 'name'"));
  MW_TRY(call.RequireShardedRank(call.operands[0].rank()));
  return First(call);
}

TypesOr InferNoise(const OpCall& call) {
  MW_TRY(call.RequireOperands(1));
  if (call.attrs.Str("name").empty()) return Fail(call.Error("needs a non-empty 'name'"));
  const std::string kind = call.attrs.Str("kind");
  if (kind != "uniform" && kind != "normal") {
    return Fail(call.Error(fmt::format("kind '{}' must be 'uniform' or 'normal'", kind)));
  }
  MW_TRY(call.RequireShardedRank(call.operands[0].rank()));
  std::vector<TensorType> types = First(call);
  MW_ASSIGN_OR_RETURN(types[0].dtype, call.FloatDTypeOr(types[0].dtype));
  return types;
}

FactorRule LinearRule(const NodeTypes& node) {
  RuleBuilder rule = SuffixRule(node);
  rule.AllLinear();
  return rule.Finish();
}

FactorRule FirstLinearRule(const NodeTypes& node) {
  RuleBuilder rule = SuffixRule(node);
  rule.Linear(0);
  return rule.Finish();
}

// A product is linear in each factor alone; a narrow one that is partial is better summed before it
// is spread over the wide one. Of a sum or difference all operands may be partial together.
FactorRule RuleByRow(const NodeTypes& node) {
  const ElementwiseRow& row = *ElementwiseRowOf(node.op);
  RuleBuilder rule = SuffixRule(node);
  const bool additive = node.op == Op::kAdd || node.op == Op::kSub;
  for (size_t i = 0; i < node.operands.size() && i < row.linear.size(); ++i) {
    const bool as_wide = i == 0 || additive || node.operands[i].dims == node.operands[0].dims;
    if (row.linear[i] && as_wide) rule.Linear(i);
  }
  return rule.Finish();
}

double FlopsByRow(const NodeTypes& node) {
  return ElementwiseRowOf(node.op)->flops * static_cast<double>(node.results[0].elements());
}

double SumFlops(const NodeTypes& node) {
  return static_cast<double>(node.results[0].elements()) *
         static_cast<double>(node.operands.size() - 1);
}

// The nodes of a gradient's formula.
ValueId AppendFormula(GradCall& call, const Formula& formula) {
  std::vector<ValueId> values = call.node.inputs;
  values.insert(values.end(), {call.node.outputs[0], call.grads[0]});
  for (const FormulaStep& step : formula.steps) {
    std::vector<ValueId> operands;
    for (int k = 0; k < step.count; ++k) {
      operands.push_back(values[static_cast<size_t>(step.operands[static_cast<size_t>(k)])]);
    }
    Attrs attrs = step.takes_attrs ? call.node.attrs : Attrs();
    if (!step.takes_attrs && step.op == Op::kScale) attrs.Set("factor", step.value);
    if (!step.takes_attrs && step.op == Op::kShift) attrs.Set("value", step.value);
    values.push_back(call.builder.AddOne(step.op, std::move(operands), std::move(attrs)));
  }
  return values[static_cast<size_t>(formula.result)];
}

// A narrow operand is used many times: its gradient is a sum.
GradsOr GradientByRow(GradCall& call) {
  std::vector<ValueId> grads;
  for (size_t i = 0; i < call.node.inputs.size(); ++i) {
    const Formula* formula = call.Wants(i) ? GradientFormulaOf(call.node.op, i) : nullptr;
    if (formula == nullptr) {
      grads.emplace_back();
      continue;
    }
    const TensorType type = call.in_type(i);
    const ValueId full = AppendFormula(call, *formula);
    MW_TRY(call.builder.status());
    grads.push_back(ReduceToSuffix(call.builder, call.InDType(full, type.dtype), type));
  }
  return grads;
}

// Where the other one is taken the gradient is 0, whatever it would be.
GradsOr SelectGrad(GradCall& call) {
  Builder& b = call.builder;
  const TensorType x = call.in_type(1);
  const TensorType y = call.in_type(2);
  const ValueId zero = b.AddOne(Op::kConstant, {}, {{"value", 0.0}}, {{x.dtype, {}}});
  const ValueId dx = b.AddOne(Op::kSelect, {call.in(0), call.grads[0], zero});
  const ValueId other = b.AddOne(Op::kLogicalNot, {call.in(0)});
  const ValueId dy = b.AddOne(Op::kSelect, {other, call.grads[0], zero});
  return std::vector<ValueId>{ValueId(), dx, ReduceToSuffix(b, dy, y)};
}

// Of one operand, linear and its own gradient.
GradsOr SelfGrad(GradCall& call) {
  return std::vector<ValueId>{call.builder.AddOne(call.node.op, {call.grads[0]}, call.node.attrs)};
}

GradsOr CastGrad(GradCall& call) {
  return std::vector<ValueId>{call.InDType(call.grads[0], call.in_type(0).dtype)};
}

GradsOr SumGrad(GradCall& call) {
  return std::vector<ValueId>(call.node.inputs.size(), call.grads[0]);
}

}  // namespace

void AddElementwiseSchemas(SchemaTable& table) {
  using enum InPlace;
  for (const ElementwiseRow& row : ElementwiseRows()) {
    bool differentiable = false;
    for (const std::string_view gradient : row.gradients) differentiable |= !gradient.empty();
    OpSchema& schema = Row(table, row.op);
    schema = {InferByRow, RuleByRow, FlopsByRow, nullptr, nullptr, 1, kFirst};
    if (differentiable) schema.gradient = GradientByRow;
  }
  Row(table, Op::kSelect).gradient = SelectGrad;
  for (const Op op : {Op::kSign, Op::kStopGradient}) Row(table, op).stops_gradient = true;
  Row(table, Op::kCast) = {InferCast, LinearRule, NoFlops, nullptr, CastGrad};
  Row(table, Op::kSum) = {InferSum, LinearRule, SumFlops, nullptr, SumGrad};
  Row(table, Op::kDropout) = {InferDropout, FirstLinearRule, nullptr, nullptr, SelfGrad, 1, kFirst};
  Row(table, Op::kNoise) = {InferNoise, PlainRule};
  Row(table, Op::kNoise).stops_gradient = true;
  for (const Op op : {Op::kDropout, Op::kNoise}) Row(table, op).position = Positioned{false, 0};
}

}  // namespace meshwright::ir
