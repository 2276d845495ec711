// Choice: gather along a dim and its gradient, one_hot, top_k. The dim that is chosen from is
// whole.
#include <fmt/format.h>

#include "ir/schema_table.h"

namespace meshwright::ir {
namespace {

constexpr int64_t kMostScattered = int64_t{1} << 40;

// x or y and ids must agree but for `dim`, and ids be i32.
Result<size_t> CheckAlong(const OpCall& call, size_t values, size_t ids) {
  const TensorType& x = call.operands[values];
  const TensorType& at = call.operands[ids];
  if (at.dtype != DType::kI32) return Fail(call.Error("ids must be i32"));
  if (x.rank() != at.rank()) return Fail(call.Error("operands must have one rank"));
  MW_ASSIGN_OR_RETURN(const int64_t dim, call.IntIn("dim", 0, x.rank() - 1));
  for (int i = 0; i < x.rank(); ++i) {
    const auto d = static_cast<size_t>(i);
    if (i != dim && x.dims[d] != at.dims[d]) {
      return Fail(call.Error(fmt::format("operands must be alike but for dim {}", dim)));
    }
  }
  return static_cast<size_t>(dim);
}

TypesOr InferGather(const OpCall& call) {
  MW_TRY(call.RequireOperands(2));
  MW_TRY(CheckAlong(call, 0, 1));
  return std::vector<TensorType>{{call.operands[0].dtype, call.operands[1].dims}};
}

TypesOr InferScatterAdd(const OpCall& call) {
  MW_TRY(call.RequireOperands(2));
  MW_TRY(call.RequireFloat(1));
  MW_ASSIGN_OR_RETURN(const size_t dim, CheckAlong(call, 1, 0));
  if (call.operands[0].dims != call.operands[1].dims) {
    return Fail(call.Error("operands must have one shape"));
  }
  TensorType type = call.operands[1];
  MW_ASSIGN_OR_RETURN(type.dims[dim], call.IntIn("size", 1, kMostScattered));
  return std::vector<TensorType>{type};
}

TypesOr InferOneHot(const OpCall& call) {
  MW_TRY(call.RequireOperands(1));
  if (call.operands[0].dtype != DType::kI32) return Fail(call.Error("ids must be i32"));
  if (call.attrs.Has("ignore_index")) MW_TRY(call.IntIn("ignore_index", INT32_MIN, INT32_MAX));
  MW_ASSIGN_OR_RETURN(const int64_t size, call.IntIn("size", 1, INT32_MAX));
  MW_ASSIGN_OR_RETURN(const DType dtype, call.FloatDTypeOr(DType::kF32));
  TensorType type{dtype, call.operands[0].dims};
  type.dims.push_back(size);
  return std::vector<TensorType>{type};
}

TypesOr InferTopK(const OpCall& call) {
  MW_TRY(call.RequireOperands(1));
  MW_TRY(call.RequireFloat(0));
  MW_TRY(call.RequireMinRank(0, 1));
  TensorType values = call.operands[0];
  if (values.dims.back() > INT32_MAX) return Fail(call.Error("ids of the last dim must fit i32"));
  MW_ASSIGN_OR_RETURN(values.dims.back(), call.IntIn("k", 1, values.dims.back()));
  return std::vector<TensorType>{values, {DType::kI32, values.dims}};
}

// All dims are those of both operands and the result but `dim`, whose sizes differ.
FactorRule AlongRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  const auto dim = static_cast<size_t>(node.attrs.Int("dim"));
  std::vector<FactorIndex> factors;
  for (size_t i = 0; i < node.results[0].dims.size(); ++i) {
    factors.push_back(i == dim ? -1 : rule.Add(node.results[0].dims[i]));
  }
  const auto lay_out = [&](const TensorType& type) {
    std::vector<FactorIndex> own = factors;
    own[dim] = rule.AddWhole(type.dims[dim]);
    return own;
  };
  for (size_t i = 0; i < node.operands.size(); ++i) rule.Operand(i, lay_out(node.operands[i]));
  rule.Result(0, lay_out(node.results[0]));
  rule.Linear(node.op == Op::kGather ? 0 : 1);
  return rule.Finish();
}

FactorRule OneHotRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  std::vector<FactorIndex> factors = rule.AddDims(node.operands[0].dims);
  rule.Operand(0, factors);
  factors.push_back(rule.AddWhole(node.results[0].dims.back()));
  rule.Result(0, factors);
  return rule.Finish();
}

FactorRule TopKRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  const Dims& dims = node.operands[0].dims;
  std::vector<FactorIndex> factors = rule.AddDims(std::span(dims).first(dims.size() - 1));
  factors.push_back(rule.AddWhole(dims.back()));
  rule.Operand(0, factors);
  factors.back() = rule.AddWhole(node.results[0].dims.back());
  for (size_t r = 0; r < 2; ++r) rule.Result(r, factors);
  return rule.Finish();
}

double TopKFlops(const NodeTypes& node) {
  return 4.0 * static_cast<double>(node.operands[0].elements());
}
double ScatterFlops(const NodeTypes& node) {
  return static_cast<double>(node.operands[1].elements());
}

// Where y of ids came from gets the sums.
ValueId Scatter(GradCall& call, ValueId ids, int64_t dim, const TensorType& x) {
  const int64_t size = x.dims[static_cast<size_t>(dim)];
  return call.builder.AddOne(Op::kScatterAdd, {ids, call.grads[0]}, {{"dim", dim}, {"size", size}});
}

GradsOr GatherGrad(GradCall& call) {
  return std::vector<ValueId>{
      Scatter(call, call.in(1), call.node.attrs.Int("dim"), call.in_type(0)), ValueId()};
}

GradsOr ScatterAddGrad(GradCall& call) {
  const ValueId dy = call.builder.AddOne(Op::kGather, {call.grads[0], call.in(0)},
                                         {{"dim", call.node.attrs.Int("dim")}});
  return std::vector<ValueId>{ValueId(), dy};
}

GradsOr TopKGrad(GradCall& call) {
  const TensorType x = call.in_type(0);
  return std::vector<ValueId>{Scatter(call, call.node.outputs[1], x.rank() - 1, x)};
}

}  // namespace

void AddChoiceSchemas(SchemaTable& table) {
  Row(table, Op::kGather) = {InferGather, AlongRule, NoFlops, nullptr, GatherGrad};
  Row(table, Op::kScatterAdd) = {InferScatterAdd, AlongRule, ScatterFlops, nullptr, ScatterAddGrad};
  Row(table, Op::kOneHot) = {InferOneHot, OneHotRule, NoFlops};
  Row(table, Op::kTopK) = {InferTopK, TopKRule, TopKFlops, nullptr, TopKGrad, 2};
}

}  // namespace meshwright::ir
