// Collectives of local graphs. They have no factor rule and no gradient: the planner makes them
// after both were used. The axes' sizes are the mesh's, so results that grow or shrink are declared
// and checked for whole ratios.
#include <fmt/format.h>

#include "ir/schema_table.h"

namespace meshwright::ir {
namespace {

Status CheckAxes(const OpCall& call) {
  if (!call.attrs.Strs("axes").empty()) return OkStatus();
  return call.Error("needs a non-empty list 'axes' of mesh axis names");
}

Status CheckKind(const OpCall& call) {
  const std::string kind = call.attrs.Str("kind", "sum");
  if (kind == "sum" || kind == "max" || kind == "lse") return OkStatus();
  return call.Error(fmt::format("kind '{}' must be sum, max or lse", kind));
}

TypesOr InferAllReduce(const OpCall& call) {
  if (call.operands.empty()) return Fail(call.Error("needs at least one operand"));
  MW_TRY(CheckAxes(call));
  MW_TRY(CheckKind(call));
  for (const TensorType& type : call.operands) {
    if (type.dtype != call.operands[0].dtype) {
      return Fail(call.Error("operands of one transfer must have one dtype"));
    }
  }
  return std::vector<TensorType>(call.operands.begin(), call.operands.end());
}

// Operand and declared result equal but for `dim`, which grows or shrinks by a whole factor.
TypesOr InferResized(const OpCall& call, bool grows) {
  MW_TRY(call.RequireOperands(1));
  MW_TRY(call.RequireDeclared(1));
  MW_TRY(CheckAxes(call));
  MW_TRY(call.RequireMinRank(0, 1));
  const TensorType& x = call.operands[0];
  MW_ASSIGN_OR_RETURN(const int64_t dim, call.IntIn("dim", 0, x.rank() - 1));
  TensorType result = call.declared[0];
  const auto d = static_cast<size_t>(dim);
  if (result.rank() == x.rank()) {
    const int64_t large = grows ? result.dims[d] : x.dims[d];
    const int64_t small = grows ? x.dims[d] : result.dims[d];
    TensorType expected = x;
    expected.dims[d] = result.dims[d];
    if (result == expected && large % small == 0) return std::vector<TensorType>{result};
  }
  return Fail(call.Error(fmt::format("result {} must be operand 0 with dim {} {} a whole factor",
                                     result.ToString(), dim, grows ? "times" : "divided by")));
}

TypesOr InferAllGather(const OpCall& call) { return InferResized(call, true); }
TypesOr InferShardSlice(const OpCall& call) { return InferResized(call, false); }
TypesOr InferReduceScatter(const OpCall& call) {
  MW_TRY(CheckKind(call));
  return InferResized(call, false);
}

TypesOr InferRingShift(const OpCall& call) {
  MW_TRY(call.RequireOperands(1));
  MW_TRY(CheckAxes(call));
  MW_TRY(call.IntIn("by", 1, 1 << 20));
  return std::vector<TensorType>{call.operands[0]};
}

TypesOr InferAllToAll(const OpCall& call) {
  MW_TRY(call.RequireOperands(1));
  MW_TRY(call.RequireDeclared(1));
  MW_TRY(CheckAxes(call));
  MW_TRY(call.RequireMinRank(0, 2));
  const TensorType& x = call.operands[0];
  MW_ASSIGN_OR_RETURN(const int64_t split, call.IntIn("split_dim", 0, x.rank() - 1));
  MW_ASSIGN_OR_RETURN(const int64_t concat, call.IntIn("concat_dim", 0, x.rank() - 1));
  const auto s = static_cast<size_t>(split);
  const auto c = static_cast<size_t>(concat);
  const TensorType& result = call.declared[0];
  if (split != concat && result.rank() == x.rank()) {
    TensorType expected = x;
    expected.dims[s] = result.dims[s];
    expected.dims[c] = result.dims[c];
    const bool whole = x.dims[s] % result.dims[s] == 0 && result.dims[c] % x.dims[c] == 0;
    if (result == expected && whole && x.dims[s] / result.dims[s] == result.dims[c] / x.dims[c]) {
      return std::vector<TensorType>{result};
    }
  }
  return Fail(call.Error(fmt::format(
      "result {} must be operand 0 with dim {} divided and dim {} multiplied by one whole factor",
      result.ToString(), split, concat)));
}

}  // namespace

void AddCollectiveSchemas(SchemaTable& table) {
  Row(table, Op::kAllReduce) = {InferAllReduce, nullptr,        nullptr,       nullptr,
                                nullptr,        kOnePerOperand, InPlace::kEach};
  Row(table, Op::kAllGather) = {InferAllGather, nullptr, NoFlops, nullptr, nullptr};
  Row(table, Op::kReduceScatter) = {InferReduceScatter, nullptr, nullptr, nullptr, nullptr};
  Row(table, Op::kAllToAll) = {InferAllToAll, nullptr, NoFlops, nullptr, nullptr};
  Row(table, Op::kRingShift) = {InferRingShift, nullptr, NoFlops, nullptr, nullptr};
  Row(table, Op::kShardSlice) = {InferShardSlice, nullptr, NoFlops, nullptr, nullptr};
}

}  // namespace meshwright::ir
