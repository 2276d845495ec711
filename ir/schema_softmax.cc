// softmax and log_softmax over the last dim.
#include "ir/schema_table.h"

namespace meshwright::ir {
namespace {

TypesOr InferSoftmax(const OpCall& call) {
  MW_TRY(call.RequireOperands(1));
  MW_TRY(call.RequireFloat(0));
  MW_TRY(call.RequireMinRank(0, 1));
  return std::vector<TensorType>{call.operands[0]};
}

FactorRule LastWholeRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  const Dims& dims = node.operands[0].dims;
  std::vector<FactorIndex> factors = rule.AddDims(std::span(dims).first(dims.size() - 1));
  factors.push_back(rule.AddWhole(dims.back()));
  rule.Operand(0, factors);
  rule.Result(0, factors);
  return rule.Finish();
}

double FlopsOfRows(const NodeTypes& node) {
  return 14.0 * static_cast<double>(node.operands[0].elements());
}

// dx = y (g - sum(g y))
GradsOr SoftmaxGrad(GradCall& call) {
  Builder& b = call.builder;
  const TensorType x = call.in_type(0);
  const ValueId weighted = b.AddOne(Op::kMul, {call.grads[0], call.node.outputs[0]});
  const ValueId mean = BroadcastLast(b, SumLast(b, weighted), x);
  const ValueId rest = b.AddOne(Op::kMul, {mean, call.node.outputs[0]});
  return std::vector<ValueId>{b.AddOne(Op::kSub, {weighted, rest})};
}

// dx = g - exp(y) sum(g)
GradsOr LogSoftmaxGrad(GradCall& call) {
  Builder& b = call.builder;
  const TensorType x = call.in_type(0);
  const ValueId probability = b.AddOne(Op::kExp, {call.node.outputs[0]});
  const ValueId sum = BroadcastLast(b, SumLast(b, call.grads[0]), x);
  const ValueId rest = b.AddOne(Op::kMul, {sum, probability});
  return std::vector<ValueId>{b.AddOne(Op::kSub, {call.grads[0], rest})};
}

}  // namespace

void AddSoftmaxSchemas(SchemaTable& table) {
  Row(table, Op::kSoftmax) = {InferSoftmax,   LastWholeRule, FlopsOfRows, nullptr, SoftmaxGrad, 1,
                              InPlace::kFirst};
  Row(table, Op::kLogSoftmax) = {
      InferSoftmax, LastWholeRule, FlopsOfRows, nullptr, LogSoftmaxGrad, 1, InPlace::kFirst};
}

}  // namespace meshwright::ir
