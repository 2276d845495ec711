// Embedding: gather of table rows and its scatter-add gradient.
#include <algorithm>

#include "ir/schema_table.h"

namespace meshwright::ir {
namespace {

TypesOr InferEmbedding(const OpCall& call) {
  MW_TRY(call.RequireOperands(2));
  MW_TRY(call.RequireFloat(0));
  MW_TRY(call.RequireRank(0, 2));
  MW_TRY(call.RequireShardedRank(2));
  if (call.operands[1].dtype != DType::kI32) return Fail(call.Error("ids must be i32"));
  if (call.attrs.Has("ignore_index")) MW_TRY(call.IntIn("ignore_index", INT32_MIN, INT32_MAX));
  TensorType result{call.operands[0].dtype, call.operands[1].dims};
  result.dims.push_back(call.operands[0].dims[1]);
  return std::vector<TensorType>{result};
}

TypesOr InferEmbeddingGrad(const OpCall& call) {
  MW_TRY(call.RequireOperandsOrOneMore(2));
  MW_TRY(call.RequireFloat(1));
  MW_TRY(call.RequireMinRank(1, 1));
  MW_TRY(call.RequireShardedRank(2));
  const TensorType& ids = call.operands[0];
  const TensorType& dy = call.operands[1];
  if (ids.dtype != DType::kI32) return Fail(call.Error("ids must be i32"));
  if (!std::equal(ids.dims.begin(), ids.dims.end(), dy.dims.begin(), dy.dims.end() - 1)) {
    return Fail(call.Error("dy must have the dims of ids followed by d"));
  }
  MW_ASSIGN_OR_RETURN(const int64_t rows, call.IntIn("rows", 1, int64_t{1} << 40));
  const TensorType result{dy.dtype, {rows, dy.dims.back()}};
  MW_TRY(call.RequireAccumulator(2, result));
  return std::vector<TensorType>{result};
}

FactorRule EmbeddingRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  const FactorIndex v = rule.Add(node.operands[0].dims[0]);
  const FactorIndex d = rule.Add(node.operands[0].dims[1]);
  std::vector<FactorIndex> ids = rule.AddDims(node.operands[1].dims);
  rule.Operand(0, {v, d});
  rule.Operand(1, ids);
  ids.push_back(d);
  rule.Result(0, ids);
  return rule.Finish();
}

FactorRule EmbeddingGradRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  const FactorIndex v = rule.Add(node.results[0].dims[0]);
  const FactorIndex d = rule.Add(node.results[0].dims[1]);
  const bool accumulates = node.operands.size() > 2;
  std::vector<FactorIndex> ids;
  for (const int64_t size : node.operands[0].dims) {
    ids.push_back(accumulates ? rule.AddWhole(size) : rule.Add(size));
  }
  rule.Operand(0, ids);
  ids.push_back(d);
  rule.Operand(1, ids);
  if (accumulates) rule.Operand(2, {v, d});
  rule.Result(0, {v, d});
  return rule.Finish();
}

// Only the gathered rows move, not the whole table.
double EmbeddingBytes(const NodeTypes& node) {
  return static_cast<double>(node.operands[1].bytes()) +
         2.0 * static_cast<double>(node.results[0].bytes());
}
// With an accumulator only the rows that it is added to.
double EmbeddingGradBytes(const NodeTypes& node) {
  const double rows = static_cast<double>(node.operands[1].bytes());
  const bool accumulates = node.operands.size() > 2;
  return static_cast<double>(node.operands[0].bytes()) + rows +
         (accumulates ? 2 * rows : static_cast<double>(node.results[0].bytes()));
}
double EmbeddingGradFlops(const NodeTypes& node) {
  return static_cast<double>(node.operands[1].elements());
}

GradsOr EmbeddingGradient(GradCall& call) {
  const int64_t rows = call.in_type(0).dims[0];
  const ValueId dtable =
      call.builder.AddOne(Op::kEmbeddingGrad, {call.in(1), call.grads[0]}, {{"rows", rows}});
  return std::vector<ValueId>{dtable, ValueId()};
}

// It is linear in dy: row i of dy was added to row ids[i].
GradsOr EmbeddingGradGradient(GradCall& call) {
  std::vector<ValueId> grads(call.node.inputs.size());
  grads[1] = call.builder.AddOne(Op::kEmbedding, {call.grads[0], call.in(0)});
  if (grads.size() > 2) grads[2] = call.grads[0];
  return grads;
}

}  // namespace

void AddEmbeddingSchemas(SchemaTable& table) {
  Row(table, Op::kEmbedding) = {InferEmbedding, EmbeddingRule, NoFlops, EmbeddingBytes,
                                EmbeddingGradient};
  Row(table, Op::kEmbeddingGrad) = {InferEmbeddingGrad, EmbeddingGradRule, EmbeddingGradFlops,
                                    EmbeddingGradBytes, EmbeddingGradGradient};
  Row(table, Op::kEmbeddingGrad).accumulator = Accumulator{0, 2};
  Row(table, Op::kEmbedding).position = Positioned{false, 0};
  Row(table, Op::kEmbeddingGrad).position = Positioned{true, 0};
}

}  // namespace meshwright::ir
