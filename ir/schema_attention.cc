// Attention and rotary positions.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/rotary.h"
#include "ir/schema_table.h"

namespace meshwright::ir {
namespace {

TypesOr InferRotary(const OpCall& call) {
  MW_TRY(call.RequireOperandsOrOneMore(1));
  MW_TRY(call.RequireFloat(0));
  MW_TRY(call.RequireRank(0, 4));
  MW_TRY(call.RequireShardedRank(4));
  if (!call.attrs.Has("frequencies")) MW_TRY(call.RealIn("base", 1, 1e30));
  if (call.attrs.Has("zigzag")) MW_TRY(call.IntIn("zigzag", 1, 1 << 20));
  if (call.attrs.Has("inverse")) MW_TRY(call.IntIn("inverse", 0, 1));
  const Dims& dims = call.operands[0].dims;
  if (dims[3] % 2 != 0) return Fail(call.Error("the head size must be even"));
  if (call.operands.size() > 1 && call.operands[1] != TensorType{DType::kI32, {dims[0], dims[1]}}) {
    return Fail(call.Error("operand 1 (positions) must be i32 [b, s]"));
  }
  if (const auto angles = RotaryFrequencies(call.attrs, dims[3] / 2); !angles) {
    return Fail(call.Error(angles.error().message()));
  }
  return std::vector<TensorType>{call.operands[0]};
}

// Dropout of the probabilities; the block attributes are those of q.
Status CheckDropout(const OpCall& call) {
  MW_TRY(call.RealIn("dropout", 0, 0.999999));
  if (call.attrs.Str("name").empty()) return call.Error("dropout needs a non-empty 'name'");
  return call.RequireShardedRank(4);
}

// Queries may be a block of a row; keys are then all of it, or a block of that length.
Status CheckTokens(const OpCall& call) {
  const int64_t queries = call.operands[0].dims[1];
  const int64_t keys = call.operands[1].dims[1];
  const ShardedDims whole = ShardedDims::FromAttrs(call.attrs);
  if (queries == keys || (!whole.whole() && keys == whole.global_dims[1])) return OkStatus();
  return call.Error("q and k must agree in dtype, b, s and e");
}

// A query sees itself and the window - 1 keys before it.
Status CheckWindow(const OpCall& call) {
  if (call.attrs.Has("causal")) MW_TRY(call.IntIn("causal", 0, 1));
  if (!call.attrs.Has("window")) return OkStatus();
  MW_TRY(call.IntIn("window", 1, int64_t{1} << 40));
  if (call.attrs.Int("causal", 1) == 1) return OkStatus();
  return call.Error("a window is one of causal attention");
}

// q[b,s,h,e], k[b,s,g,e], v like k, h a multiple of g.
Status CheckHeads(const OpCall& call) {
  for (size_t i = 0; i < 3; ++i) {
    MW_TRY(call.RequireFloat(i));
    MW_TRY(call.RequireRank(i, 4));
  }
  MW_TRY(CheckWindow(call));
  if (call.attrs.Has("dropout")) MW_TRY(CheckDropout(call));
  if (call.attrs.Has("zigzag")) MW_TRY(call.IntIn("zigzag", 1, 1 << 20));
  if (call.attrs.Has("kv_shift")) MW_TRY(call.IntIn("kv_shift", 0, 1 << 20));
  MW_TRY(call.RequireShardedRank(4));
  const TensorType& q = call.operands[0];
  const TensorType& k = call.operands[1];
  MW_TRY(call.RequireSameType(1, 2));
  if (q.dtype != k.dtype || q.dims[0] != k.dims[0] || q.dims[3] != k.dims[3]) {
    return call.Error("q and k must agree in dtype, b, s and e");
  }
  MW_TRY(CheckTokens(call));
  if (q.dims[2] % k.dims[2] != 0) {
    return call.Error(
        fmt::format("{} query heads are not a multiple of {} kv heads", q.dims[2], k.dims[2]));
  }
  return OkStatus();
}

// Without segments `count` operands, with them one more.
Status CheckSegments(const OpCall& call, size_t count) {
  MW_TRY(call.RequireOperandsOrOneMore(count));
  if (call.operands.size() == count) return OkStatus();
  const Dims& x = call.operands[0].dims;
  TensorType wanted{DType::kI32,
                    Dims(x.begin(), x.begin() + std::min<ptrdiff_t>(2, x.end() - x.begin()))};
  const ShardedDims whole = ShardedDims::FromAttrs(call.attrs);
  if (wanted.rank() == 2 && whole.global_dims.size() > 1) wanted.dims[1] = whole.global_dims[1];
  if (call.operands[count] == wanted) return OkStatus();
  return call.Error(fmt::format("operand {} (segments) must be {}", count, wanted.ToString()));
}

TensorType LogSumExpType(const TensorType& q) {
  return {StatisticDType(q.dtype), {q.dims[0], q.dims[2], q.dims[1]}};
}

TypesOr InferAttention(const OpCall& call) {
  MW_TRY(CheckSegments(call, 3));
  MW_TRY(CheckHeads(call));
  return std::vector<TensorType>{call.operands[0], LogSumExpType(call.operands[0])};
}

TypesOr InferAttentionGrad(const OpCall& call) {
  MW_TRY(CheckSegments(call, 6));
  MW_TRY(CheckHeads(call));
  MW_TRY(call.RequireSameType(0, 3));
  MW_TRY(call.RequireSameType(0, 5));
  const TensorType lse = LogSumExpType(call.operands[0]);
  if (call.operands[4] != lse) return Fail(call.Error("operand 4 (lse) must be " + lse.ToString()));
  return std::vector<TensorType>{call.operands[0], call.operands[1], call.operands[2]};
}

// qkv[b,s,3,h,e] -> o[b,s,h,e]
Result<TensorType> CheckQkv(const OpCall& call) {
  MW_TRY(call.RequireFloat(0));
  MW_TRY(call.RequireRank(0, 5));
  MW_TRY(CheckWindow(call));
  if (call.attrs.Has("dropout")) MW_TRY(CheckDropout(call));
  const TensorType& qkv = call.operands[0];
  if (qkv.dims[2] != 3) return Fail(call.Error("dim 2 of qkv must be 3"));
  return TensorType{qkv.dtype, {qkv.dims[0], qkv.dims[1], qkv.dims[3], qkv.dims[4]}};
}

TypesOr InferAttentionQkv(const OpCall& call) {
  MW_TRY(CheckSegments(call, 1));
  MW_ASSIGN_OR_RETURN(const TensorType o, CheckQkv(call));
  return std::vector<TensorType>{o, LogSumExpType(o)};
}

TypesOr InferAttentionQkvGrad(const OpCall& call) {
  MW_TRY(CheckSegments(call, 4));
  MW_ASSIGN_OR_RETURN(const TensorType o, CheckQkv(call));
  if (call.operands[1] != o) return Fail(call.Error("operand 1 (o) must be " + o.ToString()));
  MW_TRY(call.RequireSameType(1, 3));
  const TensorType lse = LogSumExpType(o);
  if (call.operands[2] != lse) return Fail(call.Error("operand 2 (lse) must be " + lse.ToString()));
  return std::vector<TensorType>{call.operands[0]};
}

FactorRule RotaryRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  const Dims& dims = node.operands[0].dims;
  std::vector<FactorIndex> factors = rule.AddDims(std::span(dims).first(3));
  factors.push_back(rule.AddWhole(dims[3]));
  rule.Operand(0, factors);
  if (node.operands.size() > 1) rule.Operand(1, {factors[0], factors[1]});
  rule.Result(0, factors);
  rule.Linear(0);
  return rule.Finish();
}

// Query heads are (g, r): splitting the kv heads g splits q, k and v alike; r query heads share one
// kv head. Each query is a row of its own: splitting them leaves the keys whole, whose gradients
// are then sums over the queries of all.
struct HeadLayouts {
  TensorFactors query;  // [b, s, h, e]
  TensorFactors key;    // [b, keys, g, e]
  TensorFactors lse;    // [b, h, s]
};

HeadLayouts AddHeadFactors(RuleBuilder& rule, const NodeTypes& node) {
  const Dims& q = node.operands[0].dims;
  const int64_t kv_heads = node.operands[1].dims[2];
  const FactorIndex b = rule.Add(q[0]);
  const FactorIndex s = rule.Add(q[1], FactorKind::kSequence);
  const FactorIndex keys = rule.AddWhole(node.operands[1].dims[1]);
  const FactorIndex g = rule.Add(kv_heads);
  const FactorIndex r = rule.AddWhole(q[2] / kv_heads);
  const FactorIndex e = rule.AddWhole(q[3]);
  return {{{b}, {s}, {g, r}, {e}}, {{b}, {keys}, {g}, {e}}, {{b}, {g, r}, {s}}};
}

// [b, s], the operand behind the first `count`, if it is there. Queries and keys look for their own
// in it.
void AddSegments(RuleBuilder& rule, const NodeTypes& node, size_t count, FactorIndex b,
                 FactorIndex s) {
  if (node.operands.size() > count) rule.Operand(count, {b, s});
}

FactorRule AttentionRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  const HeadLayouts layouts = AddHeadFactors(rule, node);
  AddSegments(rule, node, 3, layouts.key[0][0], layouts.key[1][0]);
  rule.OperandDims(0, layouts.query);
  rule.OperandDims(1, layouts.key);
  rule.OperandDims(2, layouts.key);
  rule.ResultDims(0, layouts.query);
  rule.ResultDims(1, layouts.lse);
  return rule.Finish();
}

FactorRule AttentionGradRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  const HeadLayouts layouts = AddHeadFactors(rule, node);
  rule.OperandDims(0, layouts.query);
  rule.OperandDims(1, layouts.key);
  rule.OperandDims(2, layouts.key);
  rule.OperandDims(3, layouts.query);
  rule.OperandDims(4, layouts.lse);
  rule.OperandDims(5, layouts.query);
  AddSegments(rule, node, 6, layouts.key[0][0], layouts.key[1][0]);
  rule.ResultDims(0, layouts.query);
  rule.ResultDims(1, layouts.key);
  rule.ResultDims(2, layouts.key);
  return rule.Finish();
}

FactorRule AttentionQkvRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  const Dims& qkv = node.operands[0].dims;
  const FactorIndex b = rule.Add(qkv[0]);
  const FactorIndex s = rule.AddWhole(qkv[1]);
  const FactorIndex third = rule.AddWhole(qkv[2]);
  const FactorIndex h = rule.Add(qkv[3]);
  const FactorIndex e = rule.AddWhole(qkv[4]);
  rule.Operand(0, {b, s, third, h, e});
  if (node.op == Op::kAttentionQkv) {
    rule.Result(0, {b, s, h, e});
    rule.Result(1, {b, h, s});
    AddSegments(rule, node, 1, b, s);
  } else {
    rule.Operand(1, {b, s, h, e});
    rule.Operand(2, {b, h, s});
    rule.Operand(3, {b, s, h, e});
    rule.Result(0, {b, s, third, h, e});
    AddSegments(rule, node, 4, b, s);
  }
  return rule.Finish();
}

// Pairs (i, j) of [0, n) x [0, n) with i - j <= most.
double PairsUpTo(double most, double n) {
  most = std::clamp(most, -n, n - 1);
  return most >= 0 ? n * n - (n - 1 - most) * (n - most) / 2 : (n + most) * (n + most + 1) / 2;
}

// Of all pairs of queries and keys those that a query sees: under a causal mask half of them, of
// blocks on average; of a window those near the diagonal.
double SeenShare(const NodeTypes& node, int64_t queries, int64_t keys) {
  if (node.attrs.Int("causal", 1) != 1) return 1;
  const ShardedDims whole = ShardedDims::FromAttrs(node.attrs);
  const int64_t tokens = whole.whole() ? queries : whole.global_dims[1];
  const int64_t window = node.attrs.Int("window");
  if (window == 0 || window >= tokens) return 0.5;
  const auto w = static_cast<double>(window);
  const auto n = static_cast<double>(keys);
  const bool in_order = node.attrs.Int("zigzag", 1) == 1;
  if (keys < tokens && in_order) {
    const double ahead = static_cast<double>(node.attrs.Int("kv_shift")) * n;
    return (PairsUpTo(w - 1 - ahead, n) - PairsUpTo(-1 - ahead, n)) / (n * n);
  }
  const auto all = static_cast<double>(tokens);
  return (w * all - w * (w - 1) / 2) / (all * all);
}

// Flops of one [s, keys] x e matmul over all heads.
double HeadMatmulFlops(const NodeTypes& node) {
  // o, or q, which has its shape.
  const TensorType& q = node.op == Op::kAttentionQkv       ? node.results[0]
                        : node.op == Op::kAttentionQkvGrad ? node.operands[1]
                                                           : node.operands[0];
  const bool packed = node.op == Op::kAttentionQkv || node.op == Op::kAttentionQkvGrad;
  const int64_t keys = packed ? q.dims[1] : node.operands[1].dims[1];
  const double full = 2.0 * static_cast<double>(q.elements()) * static_cast<double>(keys);
  return full * SeenShare(node, q.dims[1], keys);
}
// q k^T and p v.
double AttentionFlops(const NodeTypes& node) { return 2 * HeadMatmulFlops(node); }
// q k^T again, dv, dp, dq, dk.
double AttentionGradFlops(const NodeTypes& node) { return 5 * HeadMatmulFlops(node); }
double RotaryFlops(const NodeTypes& node) {
  return 3.0 * static_cast<double>(node.operands[0].elements());
}

// The inverse of a rotation is its transpose.
GradsOr RotaryGrad(GradCall& call) {
  Attrs attrs = call.node.attrs;
  attrs.Set("inverse", int64_t{1} - attrs.Int("inverse"));
  std::vector<ValueId> operands = call.node.inputs;
  operands[0] = call.grads[0];
  std::vector<ValueId> grads(operands.size());  // positions have none
  grads[0] = call.builder.AddOne(Op::kRotary, operands, attrs);
  return grads;
}

// What q and k get of the gradient of lse: d lse / d score is the probability itself. So dq is an
// attention whose values are the keys, and dk what values get of the queries, both by products that
// every backend and layout has; dropout has no say in lse.
GradsOr LogSumExpGradient(GradCall& call) {
  const TensorType q = call.in_type(0);
  const double scale = 1.0 / std::sqrt(static_cast<double>(q.dims[3]));
  Attrs attrs = call.node.attrs;
  if (attrs.Has("dropout")) attrs.Set("dropout", 0.0);
  std::vector<ValueId> operands = {call.in(0), call.in(1), call.in(1)};
  if (call.node.inputs.size() > 3) operands.push_back(call.in(3));
  const std::vector<ValueId> keys = call.builder.Add(Op::kAttention, operands, attrs);
  ValueId weight = call.builder.AddOne(Op::kTranspose, {call.grads[1]},
                                       {{"perm", std::vector<int64_t>{0, 2, 1}}});
  weight = call.InDType(call.builder.AddOne(Op::kScale, {weight}, {{"factor", scale}}), q.dtype);
  weight = call.builder.AddOne(Op::kBroadcast, {weight}, {{"dims", std::vector<int64_t>{3}}}, {q});
  const ValueId dq = call.builder.AddOne(Op::kMul, {keys[0], weight});
  const ValueId pulled = call.builder.AddOne(Op::kMul, {call.in(0), weight});
  operands = {call.in(0), call.in(1), call.in(1), keys[0], call.node.outputs[1], pulled};
  if (call.node.inputs.size() > 3) operands.push_back(call.in(3));
  const std::vector<ValueId> grads = call.builder.Add(Op::kAttentionGrad, operands, attrs);
  return std::vector<ValueId>{dq, grads[2]};
}

GradsOr AttentionGradient(GradCall& call) {
  const std::vector<ValueId>& out = call.node.outputs;
  std::vector<ValueId> grads(3);
  if (call.grads[0].valid()) {
    std::vector<ValueId> operands = {call.in(0), call.in(1), call.in(2),
                                     out[0],     out[1],     call.grads[0]};
    if (call.node.inputs.size() > 3) operands.push_back(call.in(3));
    grads = call.builder.Add(Op::kAttentionGrad, operands, call.node.attrs);
  }
  if (call.grads.size() > 1 && call.grads[1].valid()) {
    MW_ASSIGN_OR_RETURN(const std::vector<ValueId> more, LogSumExpGradient(call));
    for (size_t i = 0; i < more.size(); ++i) {
      grads[i] = grads[i].valid() ? call.builder.AddOne(Op::kAdd, {grads[i], more[i]}) : more[i];
    }
  }
  grads.resize(call.node.inputs.size());  // segments have none
  return grads;
}

GradsOr AttentionQkvGradient(GradCall& call) {
  MW_TRY(call.RequireOnlyFirstResult());
  const std::vector<ValueId>& out = call.node.outputs;
  std::vector<ValueId> operands = {call.in(0), out[0], out[1], call.grads[0]};
  if (call.node.inputs.size() > 1) operands.push_back(call.in(1));
  std::vector<ValueId> grads = call.builder.Add(Op::kAttentionQkvGrad, operands, call.node.attrs);
  grads.resize(call.node.inputs.size());  // segments have none
  return grads;
}

TypesOr InferSegments(const OpCall& call) {
  MW_TRY(call.RequireOperands(1));
  MW_TRY(call.RequireMinRank(0, 1));
  if (call.operands[0].dtype != DType::kI32) return Fail(call.Error("ids must be i32"));
  MW_TRY(call.IntIn("separator", INT32_MIN, INT32_MAX));
  return std::vector<TensorType>{call.operands[0]};
}

FactorRule SegmentsRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  const Dims& dims = node.operands[0].dims;
  std::vector<FactorIndex> factors = rule.AddDims(std::span(dims).first(dims.size() - 1));
  factors.push_back(rule.AddWhole(dims.back()));
  rule.Operand(0, factors);
  rule.Result(0, factors);
  return rule.Finish();
}

}  // namespace

void AddAttentionSchemas(SchemaTable& table) {
  Row(table, Op::kSegments) = {InferSegments, SegmentsRule, nullptr, nullptr, nullptr};
  Row(table, Op::kRotary) = {InferRotary, RotaryRule, RotaryFlops, nullptr, RotaryGrad};
  Row(table, Op::kAttention) = {InferAttention, AttentionRule,     AttentionFlops,
                                nullptr,        AttentionGradient, 2};
  Row(table, Op::kAttentionGrad) = {
      InferAttentionGrad, AttentionGradRule, AttentionGradFlops, nullptr, nullptr, 3};
  Row(table, Op::kAttentionQkv) = {InferAttentionQkv, AttentionQkvRule,     AttentionFlops,
                                   nullptr,           AttentionQkvGradient, 2};
  Row(table, Op::kAttentionQkvGrad) = {InferAttentionQkvGrad, AttentionQkvRule, AttentionGradFlops};
  Row(table, Op::kRotary).position = Positioned{false, 0};
  // Of q, or of what has its shape.
  Row(table, Op::kAttention).position = Positioned{false, 0, 1};
  Row(table, Op::kAttentionGrad).position = Positioned{false, 0, 1};
  Row(table, Op::kAttentionQkv).position = Positioned{true, 0};
  Row(table, Op::kAttentionQkvGrad).position = Positioned{false, 1};
  for (const Op op :
       {Op::kAttention, Op::kAttentionGrad, Op::kAttentionQkv, Op::kAttentionQkvGrad}) {
    Row(table, op).position_needs = "dropout";
  }
}

}  // namespace meshwright::ir
