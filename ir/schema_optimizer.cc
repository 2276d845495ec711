// The update: learning rate, clipping and the optimizers. Tensors are split alike in all dims; the
// rest are scalars.
#include <fmt/format.h>

#include "ir/factored.h"
#include "ir/loss_scale.h"
#include "ir/rate_schedule.h"
#include "ir/schema_table.h"

namespace meshwright::ir {
namespace {

constexpr double kHuge = 1e300;

TypesOr InferLearningRate(const OpCall& call) {
  MW_TRY(call.RequireOperands(0));
  const std::string schedule = call.attrs.Str("schedule", "constant");
  if (!IsSchedule(schedule)) {
    return Fail(call.Error(fmt::format("schedule '{}' must be {}", schedule, kSchedules)));
  }
  MW_TRY(call.RealIn("lr", 0, kHuge));
  MW_TRY(call.RealIn("min_lr", 0, kHuge));
  for (const char* name : {"warmup_steps", "total_steps"}) {
    if (call.attrs.Has(name)) MW_TRY(call.IntIn(name, 0, INT64_MAX));
  }
  if (call.declared.empty()) return std::vector<TensorType>{{DType::kF32, {}}};
  MW_TRY(call.RequireDeclared(1));
  if (call.declared[0].rank() != 0 || !IsFloating(call.declared[0].dtype)) {
    return Fail(call.Error("the result must be a floating point scalar"));
  }
  return std::vector<TensorType>{call.declared[0]};
}

TypesOr InferClipMultiplier(const OpCall& call) {
  MW_TRY(call.RequireOperands(2));
  MW_TRY(call.RequireFloatScalar(0));
  MW_TRY(call.RequireSameType(0, 1));
  MW_TRY(call.RealIn("max_norm", 0, kHuge));
  return std::vector<TensorType>{call.operands[0], call.operands[0]};
}

// p and g of one shape and type, but g may be of 16 bits where p is f32; m (and v) of their shape;
// multiplier and lr scalars behind them. State and scalars have the dtype of p's statistics; state
// of f32 may lie in bf16, rounded to nearest each time it is renewed.
TypesOr InferUpdate(const OpCall& call, size_t state_count) {
  const size_t tensors = 2 + state_count;
  MW_TRY(call.RequireOperands(tensors + 2));
  MW_TRY(call.RequireFloat(0));
  MW_TRY(call.RequireFloat(1));
  const bool narrow = call.operands[0].dtype == DType::kF32 &&
                      DTypeBytes(call.operands[1].dtype) == 2 &&
                      call.operands[0].dims == call.operands[1].dims;
  if (!narrow) MW_TRY(call.RequireSameType(0, 1));
  TensorType state{StatisticDType(call.operands[0].dtype), call.operands[0].dims};
  const bool half = state_count > 0 && call.operands[2].dtype == DType::kBF16;
  if (half && state.dtype == DType::kF32) state.dtype = DType::kBF16;
  for (size_t i = 2; i < tensors; ++i) {
    if (call.operands[i] == state) continue;
    return Fail(call.Error(fmt::format("operand {} (state) must be {}", i, state.ToString())));
  }
  MW_TRY(call.RequireStatisticScalar(tensors, 0));
  MW_TRY(call.RequireStatisticScalar(tensors + 1, 0));
  if (call.attrs.Has(kSkipsAttr)) MW_TRY(call.IntIn(kSkipsAttr, 0, 1));
  MW_TRY(call.RealIn("weight_decay", 0, kHuge));
  std::vector<TensorType> results = {call.operands[0]};
  for (size_t i = 0; i < state_count; ++i) results.push_back(call.operands[2 + i]);
  return results;
}

// (p, g, rows, columns, multiplier, lr); ir/factored.h says what rows and columns are.
TypesOr InferAdafactor(const OpCall& call) {
  MW_TRY(call.RequireOperands(6));
  MW_TRY(call.RequireFloat(0));
  MW_TRY(call.RequireSameType(0, 1));
  const TensorType& p = call.operands[0];
  const auto rank = static_cast<int64_t>(p.dims.size());
  MW_ASSIGN_OR_RETURN(const int64_t matrices, call.IntIn(kMatrixDimsAttr, 0, rank));
  MW_ASSIGN_OR_RETURN(const int64_t rows, call.IntIn(kRowDimsAttr, 0, rank - matrices));
  const Factored factored{matrices, rows};
  const DType dtype = StatisticDType(p.dtype);
  const TensorType states[] = {{dtype, factored.RowsOf(p.dims)},
                               {dtype, factored.ColumnsOf(p.dims)}};
  for (size_t i = 0; i < 2; ++i) {
    if (call.operands[2 + i] == states[i]) continue;
    return Fail(
        call.Error(fmt::format("operand {} (state) must be {}", 2 + i, states[i].ToString())));
  }
  MW_TRY(call.RequireStatisticScalar(4, 0));
  MW_TRY(call.RequireStatisticScalar(5, 0));
  if (call.attrs.Has(kSkipsAttr)) MW_TRY(call.IntIn(kSkipsAttr, 0, 1));
  if (call.attrs.Has("scale_parameter")) MW_TRY(call.IntIn("scale_parameter", 0, 1));
  for (const char* name : {"weight_decay", "decay_rate", "clip_threshold"}) {
    MW_TRY(call.RealIn(name, 0, kHuge));
  }
  return std::vector<TensorType>{p, states[0], states[1]};
}

TypesOr InferAdamW(const OpCall& call) {
  if (IsFactored(call.attrs)) return InferAdafactor(call);
  MW_TRY(call.RealIn("beta1", 0, 1));
  MW_TRY(call.RealIn("beta2", 0, 1));
  MW_TRY(call.RealIn("eps", 0, kHuge));
  return InferUpdate(call, 2);
}

// With sign_beta it is Lion: p goes by the sign of sign_beta * m + (1 - sign_beta) * g, m is a
// mean, momentum * m + (1 - momentum) * g, and decay is decoupled, p * (1 - lr * weight_decay)
// first. Source: Chen et al., "Symbolic Discovery of Optimization Algorithms", NeurIPS'23,
// algorithm 2.
TypesOr InferSgd(const OpCall& call) {
  MW_TRY(call.RealIn("momentum", 0, 1));
  if (call.attrs.Has("sign_beta")) MW_TRY(call.RealIn("sign_beta", 0, 1));
  return InferUpdate(call, 1);
}

FactorRule UpdateRule(const NodeTypes& node) { return SuffixRule(node).Finish(); }

// Its sums are over all of the param: none of its dims may be split.
FactorRule AdafactorRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  const Dims& dims = node.operands[0].dims;
  std::vector<FactorIndex> all;
  for (const int64_t dim : dims) all.push_back(rule.AddWhole(dim));
  const auto matrices = static_cast<std::ptrdiff_t>(node.attrs.Int(kMatrixDimsAttr));
  const auto rows = static_cast<std::ptrdiff_t>(node.attrs.Int(kRowDimsAttr));
  const std::vector<FactorIndex> of_rows(all.begin(), all.begin() + matrices + rows);
  std::vector<FactorIndex> of_columns(all.begin(), all.begin() + matrices);
  of_columns.insert(of_columns.end(), all.begin() + matrices + rows, all.end());
  rule.Operand(0, all);
  rule.Operand(1, all);
  rule.Operand(2, of_rows);
  rule.Operand(3, of_columns);
  rule.Operand(4, {});
  rule.Operand(5, {});
  rule.Result(0, all);
  rule.Result(1, of_rows);
  rule.Result(2, of_columns);
  return rule.Finish();
}

FactorRule AdamWRule(const NodeTypes& node) {
  return IsFactored(node.attrs) ? AdafactorRule(node) : UpdateRule(node);
}

double ScalarFlops(const NodeTypes&) { return 1; }
double AdamWFlops(const NodeTypes& node) {
  return 16.0 * static_cast<double>(node.operands[0].elements());
}
double SgdFlops(const NodeTypes& node) {
  return 6.0 * static_cast<double>(node.operands[0].elements());
}

}  // namespace

void AddOptimizerSchemas(SchemaTable& table) {
  Row(table, Op::kLearningRate) = {InferLearningRate, UpdateRule, ScalarFlops, nullptr, nullptr};
  Row(table, Op::kClipMultiplier) = {
      InferClipMultiplier, UpdateRule, ScalarFlops, nullptr, nullptr, 2};
  Row(table, Op::kAdamW) = {InferAdamW, AdamWRule, AdamWFlops,         nullptr,
                            nullptr,    3,         InPlace::kOptimizer};
  Row(table, Op::kSgd) = {InferSgd, UpdateRule, SgdFlops, nullptr, nullptr, 2, InPlace::kOptimizer};
}

}  // namespace meshwright::ir
