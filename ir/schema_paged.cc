// Attention to what is kept of earlier tokens, in pages.
//
// Behind the operands that ir/op.h says may come: key_row[b, m], key_position[b, m] (i32), places
// of keys and values k[b, m, g, e] that are others than those of the queries (what an encoder says
// of a source), so that a token sees its text up to its position and writes nothing there; and,
// last, bias[h, d]: what is added to the scaled score of a key so many places before its query, of
// which the last one is that of all farther keys. ADR 0104 says why.
//
// And beside its window {score_cap:real}: a scaled score s counts as cap * tanh(s / cap).
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "ir/schema_table.h"

namespace meshwright::ir {
namespace {

enum : size_t { kQueries, kKeys, kValues, kPages, kTable, kRow, kPosition, kOperands };
constexpr size_t kKeyRow = kOperands;
constexpr size_t kKeyPosition = kOperands + 1;
constexpr size_t kMostOperands = kOperands + 3;
constexpr int kPageTokens = 4;  // dims of pages
constexpr int kPageWidth = 5;

bool HasKeyPlaces(size_t operands) { return operands >= kOperands + 2; }
// The operand of the bias; nothing: there is none.
std::optional<size_t> BiasOf(size_t operands) {
  if ((operands - kOperands) % 2 == 0) return std::nullopt;
  return operands - 1;
}

Status CheckIndices(const OpCall& call, const Dims& q) {
  MW_TRY(call.RequireRank(kTable, 3));
  const Dims& table = call.operands[kTable].dims;
  if (call.operands[kTable].dtype != DType::kI32 || table[0] != q[0]) {
    return call.Error("the table of pages must be i32 [b, r, m]");
  }
  const TensorType of_tokens{DType::kI32, {q[0], q[1]}};
  for (const size_t i : {kRow, kPosition}) {
    if (call.operands[i] == of_tokens) continue;
    return call.Error(fmt::format("operand {} must be {}", i, of_tokens.ToString()));
  }
  if (!HasKeyPlaces(call.operands.size())) return OkStatus();
  const TensorType of_keys{DType::kI32, {q[0], call.operands[kKeys].dims[1]}};
  for (const size_t i : {kKeyRow, kKeyPosition}) {
    if (call.operands[i] == of_keys) continue;
    return call.Error(fmt::format("operand {} must be {}", i, of_keys.ToString()));
  }
  return OkStatus();
}

Status CheckBias(const OpCall& call, const TensorType& q) {
  const std::optional<size_t> bias = BiasOf(call.operands.size());
  if (!bias) return OkStatus();
  MW_TRY(call.RequireRank(*bias, 2));
  const TensorType& type = call.operands[*bias];
  if (type.dtype == q.dtype && type.dims[0] == q.dims[2]) return OkStatus();
  return call.Error("the bias must be [h, d] in the type of q");
}

TypesOr InferPaged(const OpCall& call) {
  if (call.operands.size() < kOperands || call.operands.size() > kMostOperands) {
    MW_TRY(call.RequireOperands(kOperands));
  }
  for (const size_t i : {kQueries, kKeys, kValues, kPages}) MW_TRY(call.RequireFloat(i));
  MW_TRY(call.RequireRank(kQueries, 4));
  MW_TRY(call.RequireRank(kKeys, 4));
  MW_TRY(call.RequireRank(kPages, 6));
  MW_TRY(call.RequireSameType(kKeys, kValues));
  if (call.attrs.Has("window")) MW_TRY(call.IntIn("window", 1, int64_t{1} << 40));
  if (call.attrs.Has("score_cap")) MW_TRY(call.RealIn("score_cap", 1e-6, 1e6));
  const TensorType& q = call.operands[kQueries];
  const TensorType& k = call.operands[kKeys];
  const TensorType& pages = call.operands[kPages];
  const bool one_place = q.dims[1] == k.dims[1] || HasKeyPlaces(call.operands.size());
  if (q.dtype != k.dtype || q.dims[0] != k.dims[0] || !one_place || q.dims[3] != k.dims[3]) {
    return Fail(call.Error("q and k must agree in dtype, b, n and e"));
  }
  if (q.dims[2] % k.dims[2] != 0) {
    return Fail(call.Error(
        fmt::format("{} query heads are not a multiple of {} kv heads", q.dims[2], k.dims[2])));
  }
  const Dims wanted = {q.dims[0], pages.dims[1], 2, k.dims[2], pages.dims[kPageTokens], q.dims[3]};
  if (pages.dims != wanted) {
    return Fail(call.Error("pages must be [b, p, 2, g, t, e] with b, g and e of k"));
  }
  MW_TRY(CheckIndices(call, q.dims));
  MW_TRY(CheckBias(call, q));
  const TensorType lse{StatisticDType(q.dtype), {q.dims[0], q.dims[2], q.dims[1]}};
  return std::vector<TensorType>{q, lse, pages};
}

// Groups of texts, b, and kv heads may be split. Tokens may not: each may see any other.
FactorRule PagedRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  const Dims& q = node.operands[kQueries].dims;
  const Dims& pages = node.operands[kPages].dims;
  const Dims& table = node.operands[kTable].dims;
  const int64_t kv_heads = node.operands[kKeys].dims[2];
  const FactorIndex b = rule.Add(q[0]);
  const FactorIndex n = rule.AddWhole(q[1]);
  const bool own_places = HasKeyPlaces(node.operands.size());
  const FactorIndex keys = own_places ? rule.AddWhole(node.operands[kKeys].dims[1]) : n;
  const FactorIndex g = rule.Add(kv_heads);
  const FactorIndex r = rule.AddWhole(q[2] / kv_heads);
  const FactorIndex e = rule.AddWhole(q[3]);
  const FactorIndex p = rule.AddWhole(pages[1]);
  const FactorIndex both = rule.AddWhole(pages[2]);
  const FactorIndex t = rule.AddWhole(pages[kPageTokens]);
  const FactorIndex texts = rule.AddWhole(table[1]);
  const FactorIndex m = rule.AddWhole(table[2]);
  rule.OperandDims(kQueries, {{b}, {n}, {g, r}, {e}});
  rule.Operand(kKeys, {b, keys, g, e});
  rule.Operand(kValues, {b, keys, g, e});
  rule.Operand(kPages, {b, p, both, g, t, e});
  rule.Operand(kTable, {b, texts, m});
  rule.Operand(kRow, {b, n});
  rule.Operand(kPosition, {b, n});
  if (own_places) {
    rule.Operand(kKeyRow, {b, keys});
    rule.Operand(kKeyPosition, {b, keys});
  }
  if (const std::optional<size_t> bias = BiasOf(node.operands.size())) {
    rule.OperandDims(*bias, {{g, r}, {rule.AddWhole(node.operands[*bias].dims[1])}});
  }
  rule.ResultDims(0, {{b}, {n}, {g, r}, {e}});
  rule.ResultDims(1, {{b}, {g, r}, {n}});
  rule.Result(2, {b, p, both, g, t, e});
  return rule.Finish();
}

// How long the texts are is known when the program runs; here half of the longest.
double KeysSeen(const NodeTypes& node) {
  const int64_t longest = node.operands[kTable].dims[2] * node.operands[kPages].dims[kPageTokens];
  const int64_t window = node.attrs.Int("window");
  const double half = static_cast<double>(longest) / 2;
  return window > 0 ? std::min(static_cast<double>(window), half) : half;
}

double PagedFlops(const NodeTypes& node) {
  return 4.0 * static_cast<double>(node.operands[kQueries].elements()) * KeysSeen(node);
}

// Of the pages only those of the texts are read, and those of the tokens written.
double PagedBytes(const NodeTypes& node) {
  double bytes = 0;
  for (const size_t i : {kQueries, kKeys, kValues}) {
    bytes += static_cast<double>(node.operands[i].bytes());
  }
  const TensorType& pages = node.operands[kPages];
  const double per_token =
      2.0 * static_cast<double>(pages.dims[3] * pages.dims[kPageWidth] * DTypeBytes(pages.dtype));
  const auto texts =
      static_cast<double>(std::min(node.operands[kTable].dims[1], node.operands[kRow].dims[1]));
  return bytes + static_cast<double>(node.results[0].bytes()) +
         per_token * (texts * KeysSeen(node) + static_cast<double>(node.operands[kKeys].dims[1]));
}

}  // namespace

void AddPagedSchemas(SchemaTable& table) {
  Row(table, Op::kPagedAttention) = {InferPaged, PagedRule, PagedFlops,     PagedBytes,
                                     nullptr,    3,         InPlace::kPages};
}

}  // namespace meshwright::ir
