// Elementwise ops: every dim is parallel; operands with fewer dims align from the right.
#include <fmt/format.h>

#include <algorithm>

#include "ir/schema_table.h"

namespace meshwright::ir {
namespace {

std::vector<TensorType> First(const OpCall& call) { return {call.operands[0]}; }

TypesOr InferSuffix(const OpCall& call) {
  MW_TRY(call.RequireOperands(2));
  const Dims& x = call.operands[0].dims;
  const Dims& y = call.operands[1].dims;
  if (call.operands[0].dtype != call.operands[1].dtype) {
    return Fail(call.Error("operands must have one dtype"));
  }
  if (y.size() > x.size() || !std::equal(y.rbegin(), y.rend(), x.rbegin())) {
    return Fail(call.Error("the shape of operand 1 must be a suffix of the shape of operand 0"));
  }
  return First(call);
}

TypesOr InferAllEqual(const OpCall& call) {
  if (call.operands.empty()) return Fail(call.Error("needs at least one operand"));
  for (size_t i = 1; i < call.operands.size(); ++i) MW_TRY(call.RequireSameType(0, i));
  return First(call);
}

TypesOr InferSub(const OpCall& call) {
  MW_TRY(call.RequireOperands(2));
  return InferAllEqual(call);
}

TypesOr InferUnary(const OpCall& call) {
  MW_TRY(call.RequireOperands(1));
  MW_TRY(call.RequireFloat(0));
  return First(call);
}

TypesOr InferScale(const OpCall& call) {
  if (!call.attrs.Has("factor")) return Fail(call.Error("needs the real attribute 'factor'"));
  MW_TRY(call.RealIn("factor", -1e300, 1e300));
  return InferUnary(call);
}

TypesOr InferMulScalar(const OpCall& call) {
  MW_TRY(call.RequireOperands(2));
  MW_TRY(call.RequireFloat(0));
  MW_TRY(call.RequireStatisticScalar(1, 0));
  return First(call);
}

TypesOr InferCast(const OpCall& call) {
  MW_ASSIGN_OR_RETURN(std::vector<TensorType> types, InferUnary(call));
  if (!call.attrs.Has("dtype")) return Fail(call.Error("needs the attribute 'dtype'"));
  MW_ASSIGN_OR_RETURN(types[0].dtype, call.FloatDTypeOr(types[0].dtype));
  return types;
}

TypesOr InferGateGrad(const OpCall& call) {
  MW_TRY(call.RequireOperands(2));
  MW_TRY(call.RequireFloat(0));
  return InferAllEqual(call);
}

TypesOr InferDropout(const OpCall& call) {
  MW_ASSIGN_OR_RETURN(std::vector<TensorType> types, InferUnary(call));
  MW_TRY(call.RealIn("rate", 0, 0.999999));
  if (call.attrs.Str("name").empty()) return Fail(call.Error("needs a non-empty 'name'"));
  MW_TRY(call.RequireShardedRank(types[0].rank()));
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

// A product is linear in each factor alone. A narrow one that is partial is better summed before it
// is spread over the wide one.
FactorRule MulRule(const NodeTypes& node) {
  RuleBuilder rule = SuffixRule(node);
  rule.Linear(0);
  if (node.operands[0].dims == node.operands[1].dims) rule.Linear(1);
  return rule.Finish();
}

FactorRule PlainRule(const NodeTypes& node) { return SuffixRule(node).Finish(); }

double SumFlops(const NodeTypes& node) {
  return static_cast<double>(node.results[0].elements()) *
         static_cast<double>(node.operands.size() - 1);
}

// tanh and exp cost about this many multiply-adds per element.
double GateFlops(const NodeTypes& node) {
  return 12.0 * static_cast<double>(node.results[0].elements());
}

// Sums the leading dims that a suffix-shaped operand does not have.
ValueId ReduceToSuffix(Builder& builder, ValueId value, const TensorType& suffix) {
  const int extra = builder.type(value).rank() - suffix.rank();
  if (extra <= 0) return value;
  std::vector<int64_t> dims;
  for (int i = 0; i < extra; ++i) dims.push_back(i);
  return builder.AddOne(Op::kReduceSum, {value}, {{"dims", dims}});
}

GradsOr AddGrad(GradCall& call) {
  const TensorType y = call.in_type(1);
  return std::vector<ValueId>{call.grads[0], ReduceToSuffix(call.builder, call.grads[0], y)};
}

GradsOr MulGrad(GradCall& call) {
  Builder& b = call.builder;
  const TensorType y = call.in_type(1);
  const ValueId dx = b.AddOne(Op::kMul, {call.grads[0], call.in(1)});
  const ValueId full = b.AddOne(Op::kMul, {call.grads[0], call.in(0)});
  MW_TRY(b.status());
  return std::vector<ValueId>{dx, ReduceToSuffix(b, full, y)};
}

GradsOr SubGrad(GradCall& call) {
  const ValueId dy = call.builder.AddOne(Op::kScale, {call.grads[0]}, {{"factor", -1.0}});
  return std::vector<ValueId>{call.grads[0], dy};
}

// Ops of one operand that are linear and their own gradient: scale, dropout.
GradsOr SelfGrad(GradCall& call) {
  return std::vector<ValueId>{call.builder.AddOne(call.node.op, {call.grads[0]}, call.node.attrs)};
}

GradsOr CastGrad(GradCall& call) {
  return std::vector<ValueId>{call.InDType(call.grads[0], call.in_type(0).dtype)};
}

// dx = dy * c; dc = sum of dy * x.
GradsOr MulScalarGrad(GradCall& call) {
  const TensorType c = call.in_type(1);
  Builder& b = call.builder;
  const ValueId dx = b.AddOne(Op::kMulScalar, {call.grads[0], call.in(1)});
  const ValueId full = b.AddOne(Op::kMul, {call.grads[0], call.in(0)});
  MW_TRY(b.status());
  return std::vector<ValueId>{dx, ReduceToSuffix(b, call.InDType(full, c.dtype), c)};
}

GradsOr SumGrad(GradCall& call) {
  return std::vector<ValueId>(call.node.inputs.size(), call.grads[0]);
}

template <Op kGradOp>
GradsOr GateGrad(GradCall& call) {
  return std::vector<ValueId>{call.builder.AddOne(kGradOp, {call.in(0), call.grads[0]})};
}

}  // namespace

void AddElementwiseSchemas(SchemaTable& table) {
  using enum InPlace;
  Row(table, Op::kAdd) = {InferSuffix, LinearRule, nullptr, nullptr, AddGrad, 1, kFirst};
  Row(table, Op::kMul) = {InferSuffix, MulRule, nullptr, nullptr, MulGrad, 1, kFirst};
  Row(table, Op::kSub) = {InferSub, LinearRule, nullptr, nullptr, SubGrad, 1, kFirst};
  Row(table, Op::kScale) = {InferScale, LinearRule, nullptr, nullptr, SelfGrad, 1, kFirst};
  Row(table, Op::kMulScalar) = {InferMulScalar, FirstLinearRule, nullptr, nullptr, MulScalarGrad, 1,
                                kFirst};
  Row(table, Op::kCast) = {InferCast, LinearRule, NoFlops, nullptr, CastGrad};
  Row(table, Op::kSum) = {InferAllEqual, LinearRule, SumFlops, nullptr, SumGrad};
  Row(table, Op::kGelu) = {InferUnary, PlainRule, GateFlops, nullptr, GateGrad<Op::kGeluGrad>,
                           1,          kFirst};
  Row(table, Op::kGeluGrad) = {InferGateGrad, PlainRule, GateFlops, nullptr, nullptr, 1, kFirst};
  Row(table, Op::kSilu) = {InferUnary, PlainRule, GateFlops, nullptr, GateGrad<Op::kSiluGrad>,
                           1,          kFirst};
  Row(table, Op::kSiluGrad) = {InferGateGrad, PlainRule, GateFlops, nullptr, nullptr, 1, kFirst};
  Row(table, Op::kDropout) = {InferDropout, FirstLinearRule, nullptr, nullptr, SelfGrad, 1, kFirst};
}

}  // namespace meshwright::ir
