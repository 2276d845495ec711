// Losses: cross entropy, and the three pieces it becomes when the vocabulary is split.
#include <algorithm>

#include "ir/schema_table.h"

namespace meshwright::ir {
namespace {

TensorType Leading(const TensorType& x) {
  return {StatisticDType(x.dtype), Dims(x.dims.begin(), x.dims.end() - 1)};
}

TensorType LossType(const TensorType& x) { return {StatisticDType(x.dtype), {}}; }

// logits[..., v], labels[...] i32.
Status CheckLogits(const OpCall& call) {
  MW_TRY(call.RequireFloat(0));
  MW_TRY(call.RequireMinRank(0, 1));
  if (call.attrs.Has("ignore_index")) MW_TRY(call.IntIn("ignore_index", INT32_MIN, INT32_MAX));
  const TensorType labels{DType::kI32, Leading(call.operands[0]).dims};
  if (call.operands[1] == labels) return OkStatus();
  return call.Error("labels must be " + labels.ToString());
}

TypesOr InferCrossEntropy(const OpCall& call) {
  MW_TRY(call.RequireOperands(2));
  MW_TRY(CheckLogits(call));
  const TensorType loss = LossType(call.operands[0]);
  return std::vector<TensorType>{loss, loss, Leading(call.operands[0])};
}

TypesOr InferCrossEntropyGrad(const OpCall& call) {
  MW_TRY(call.RequireOperands(4));
  MW_TRY(CheckLogits(call));
  MW_TRY(call.RequireStatisticScalar(3, 0));
  const TensorType& logits = call.operands[0];
  MW_TRY(call.RequireShardedRank(logits.rank()));
  if (call.operands[2] != Leading(logits)) {
    return Fail(call.Error("operand 2 (lse) must be " + Leading(logits).ToString()));
  }
  return std::vector<TensorType>{logits};
}

TypesOr InferLogSumExp(const OpCall& call) {
  MW_TRY(call.RequireOperands(1));
  MW_TRY(call.RequireFloat(0));
  MW_TRY(call.RequireMinRank(0, 1));
  return std::vector<TensorType>{Leading(call.operands[0])};
}

TypesOr InferPick(const OpCall& call) {
  MW_TRY(call.RequireOperands(2));
  MW_TRY(CheckLogits(call));
  MW_TRY(call.RequireShardedRank(call.operands[0].rank()));
  return std::vector<TensorType>{Leading(call.operands[0])};
}

TypesOr InferNll(const OpCall& call) {
  MW_TRY(call.RequireOperands(3));
  MW_TRY(call.RequireFloat(0));
  MW_TRY(call.RequireSameType(0, 1));
  if (call.operands[2] != TensorType{DType::kI32, call.operands[0].dims}) {
    return Fail(call.Error("labels must be i32 with the dims of operand 0"));
  }
  const TensorType loss = LossType(call.operands[0]);
  return std::vector<TensorType>{loss, loss};
}

// x[..., d], w[v, d], labels[...] -> loss, count, and with a gradient dx, dw; then the block.
TypesOr InferHeadLoss(const OpCall& call) {
  const bool gradient = call.op == Op::kHeadLossGrad;
  MW_TRY(gradient ? call.RequireOperandsOrOneMore(4) : call.RequireOperands(3));
  MW_TRY(call.RequireFloat(0));
  MW_TRY(call.RequireMinRank(0, 1));
  MW_TRY(call.RequireRank(1, 2));
  MW_TRY(call.IntIn("block_tokens", 1, INT32_MAX));
  if (call.attrs.Has("ignore_index")) MW_TRY(call.IntIn("ignore_index", INT32_MIN, INT32_MAX));
  if (gradient) MW_TRY(call.RequireStatisticScalar(3, 0));
  const TensorType& x = call.operands[0];
  const TensorType& w = call.operands[1];
  if (w.dtype != x.dtype || w.dims[1] != x.dims.back()) {
    return Fail(call.Error("w must be [v, d] in the dtype of x[..., d]"));
  }
  const TensorType labels{DType::kI32, Leading(x).dims};
  if (call.operands[2] != labels) {
    return Fail(call.Error("labels must be " + labels.ToString()));
  }
  std::vector<TensorType> types = {LossType(x), LossType(x)};
  const DType statistic = StatisticDType(x.dtype);
  if (gradient) types.insert(types.end(), {{statistic, x.dims}, {statistic, w.dims}});
  if (gradient) MW_TRY(call.RequireAccumulator(4, types[3]));
  types.push_back({statistic, {call.attrs.Int("block_tokens"), w.dims[0]}});
  return types;
}

// Factors of logits [..., v]; the leading ones are those of labels and statistics.
struct LogitFactors {
  std::vector<FactorIndex> full;
  std::vector<FactorIndex> leading;
};

LogitFactors AddLogitFactors(RuleBuilder& rule, const Dims& dims) {
  LogitFactors factors;
  factors.full = rule.AddDims(dims);
  factors.leading.assign(factors.full.begin(), factors.full.end() - 1);
  return factors;
}

FactorRule CrossEntropyRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  const LogitFactors factors = AddLogitFactors(rule, node.operands[0].dims);
  rule.Operand(0, factors.full);
  rule.Operand(1, factors.leading);
  rule.Result(2, factors.leading);
  rule.Partial(2, PartialKind::kLogSumExp);
  return rule.Finish();
}

FactorRule CrossEntropyGradRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  const LogitFactors factors = AddLogitFactors(rule, node.operands[0].dims);
  rule.Operand(0, factors.full);
  rule.Operand(1, factors.leading);
  rule.Operand(2, factors.leading);
  rule.Result(0, factors.full);
  return rule.Finish();
}

FactorRule LogSumExpRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  const LogitFactors factors = AddLogitFactors(rule, node.operands[0].dims);
  rule.Operand(0, factors.full);
  rule.Result(0, factors.leading);
  rule.Partial(0, PartialKind::kLogSumExp);
  return rule.Finish();
}

FactorRule PickRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  const LogitFactors factors = AddLogitFactors(rule, node.operands[0].dims);
  rule.Operand(0, factors.full);
  rule.Operand(1, factors.leading);
  rule.Result(0, factors.leading);
  return rule.Finish();
}

FactorRule NllRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  const std::vector<FactorIndex> factors = rule.AddDims(node.operands[0].dims);
  for (size_t i = 0; i < 3; ++i) rule.Operand(i, factors);
  return rule.Finish();
}

FactorRule HeadLossRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  const Dims& x = node.operands[0].dims;
  const bool accumulates = node.operands.size() > 4;
  std::vector<FactorIndex> rows;
  for (const int64_t size : std::span(x).first(x.size() - 1)) {
    rows.push_back(accumulates ? rule.AddWhole(size) : rule.Add(size));
  }
  const FactorIndex d = rule.AddWhole(x.back());
  const FactorIndex v = rule.AddWhole(node.operands[1].dims[0]);
  std::vector<FactorIndex> tokens = rows;
  tokens.push_back(d);
  rule.Operand(0, tokens);
  rule.Operand(1, {v, d});
  rule.Operand(2, rows);
  size_t block = 2;
  if (node.op == Op::kHeadLossGrad) {
    rule.Result(2, tokens);
    rule.Result(3, {v, d});
    if (accumulates) rule.Operand(4, {v, d});
    block = 4;
  }
  rule.Result(block, {rule.AddWhole(node.results[block].dims[0]), v});
  return rule.Finish();
}

// The logits, and with a gradient dx and dw.
double HeadLossFlops(const NodeTypes& node) {
  const double logits = static_cast<double>(node.operands[2].elements()) *
                        static_cast<double>(node.operands[1].dims[0]);
  const double products = node.op == Op::kHeadLossGrad ? 3 : 1;
  return logits * (2 * products * static_cast<double>(node.operands[1].dims[1]) + 12);
}

// One exp per logit.
double SoftmaxFlops(const NodeTypes& node) {
  return 12.0 * static_cast<double>(node.operands[0].elements());
}
double NllFlops(const NodeTypes& node) {
  return 2.0 * static_cast<double>(node.operands[0].elements());
}

Attrs IgnoreAttrs(const Node& node) {
  Attrs attrs;
  if (node.attrs.Has("ignore_index")) attrs.Set("ignore_index", node.attrs.Int("ignore_index"));
  return attrs;
}

// dx = g exp(x - lse)
ValueId SpreadOverLogits(GradCall& call, ValueId lse, ValueId g) {
  Builder& b = call.builder;
  const TensorType x = call.in_type(0);
  const TensorType wide{StatisticDType(x.dtype), x.dims};
  const ValueId logits = call.InDType(call.in(0), wide.dtype);
  const ValueId share =
      b.AddOne(Op::kExp, {b.AddOne(Op::kSub, {logits, BroadcastLast(b, lse, wide)})});
  const ValueId dx = b.AddOne(Op::kMul, {share, BroadcastLast(b, g, wide)});
  return call.InDType(dx, x.dtype);
}

GradsOr LogSumExpGradient(GradCall& call) {
  return std::vector<ValueId>{SpreadOverLogits(call, call.node.outputs[0], call.grads[0])};
}

// The count (result 1) does not depend on the logits.
GradsOr CrossEntropyGradient(GradCall& call) {
  const ValueId lse = call.node.outputs[2];
  std::vector<ValueId> terms;
  if (call.grads[0].valid()) {
    terms.push_back(call.builder.AddOne(Op::kCrossEntropyGrad,
                                        {call.in(0), call.in(1), lse, call.grads[0]},
                                        IgnoreAttrs(call.node)));
  }
  if (call.grads[2].valid()) terms.push_back(SpreadOverLogits(call, lse, call.grads[2]));
  std::vector<ValueId> grads(2);
  if (!terms.empty()) {
    grads[0] = terms.size() == 1 ? terms[0] : call.builder.AddOne(Op::kSum, terms);
  }
  return grads;
}

// (exp(logits - lse) - one_hot(labels)) * dloss in the rows that count.
std::vector<ValueId> DecomposeCrossEntropyGrad(Builder& b, const Node& node) {
  const TensorType logits = b.type(node.inputs[0]);
  const TensorType wide{StatisticDType(logits.dtype), logits.dims};
  Attrs attrs = {{"size", logits.dims.back()},
                 {"ignore_index", node.attrs.Int("ignore_index", kDefaultIgnoreIndex)},
                 {"dtype", std::string(DTypeName(wide.dtype))}};
  const ValueId hot = b.AddOne(Op::kOneHot, {node.inputs[1]}, std::move(attrs));
  const ValueId counts = BroadcastLast(b, SumLast(b, hot), wide);
  const ValueId x = InDType(b, node.inputs[0], wide.dtype);
  const ValueId shifted = b.AddOne(Op::kSub, {x, BroadcastLast(b, node.inputs[2], wide)});
  const ValueId difference = b.AddOne(Op::kSub, {b.AddOne(Op::kExp, {shifted}), hot});
  const ValueId counted = b.AddOne(Op::kMul, {difference, counts});
  const ValueId scaled = b.AddOne(Op::kMulScalar, {counted, node.inputs[3]});
  return {InDType(b, scaled, logits.dtype)};
}

GradsOr CrossEntropyGradGradient(GradCall& call) {
  return DecomposedGradient(call, DecomposeCrossEntropyGrad);
}

}  // namespace

void AddLossSchemas(SchemaTable& table) {
  Row(table, Op::kCrossEntropy) = {InferCrossEntropy, CrossEntropyRule,     SoftmaxFlops,
                                   nullptr,           CrossEntropyGradient, 3};
  Row(table, Op::kCrossEntropyGrad) = {InferCrossEntropyGrad, CrossEntropyGradRule, SoftmaxFlops,
                                       nullptr, CrossEntropyGradGradient};
  Row(table, Op::kHeadLoss) = {InferHeadLoss, HeadLossRule, HeadLossFlops, nullptr, nullptr, 3};
  Row(table, Op::kHeadLossGrad) = {InferHeadLoss, HeadLossRule, HeadLossFlops, nullptr, nullptr, 5};
  Row(table, Op::kHeadLossGrad).accumulator = Accumulator{3, 4};
  Row(table, Op::kLogSumExp) = {InferLogSumExp, LogSumExpRule, SoftmaxFlops, nullptr,
                                LogSumExpGradient};
  Row(table, Op::kPick) = {InferPick, PickRule, nullptr, nullptr, nullptr};
  Row(table, Op::kNll) = {InferNll, NllRule, NllFlops, nullptr, nullptr, 2};
  for (const Op op : {Op::kCrossEntropyGrad, Op::kPick}) {
    Row(table, op).position = Positioned{false, 0};
  }
}

}  // namespace meshwright::ir
