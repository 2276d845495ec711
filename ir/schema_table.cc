#include "ir/schema_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "ir/autodiff.h"

namespace meshwright::ir {

std::string FormatTypes(std::span<const TensorType> types) {
  std::string text;
  for (const TensorType& type : types) {
    if (!text.empty()) text += ", ";
    text += type.ToString();
  }
  return text;
}

DType StatisticDType(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 ? DType::kF32 : dtype;
}

Status CheckType(const TensorType& type) {
  constexpr int64_t kMaxBytes = int64_t{1} << 48;
  int64_t bytes = DTypeBytes(type.dtype);
  for (int64_t dim : type.dims) {
    if (dim < 1) {
      return InvalidArgument(fmt::format("type {}: dims must be at least 1", type.ToString()));
    }
    if (__builtin_mul_overflow(bytes, dim, &bytes) || bytes > kMaxBytes) {
      return InvalidArgument(fmt::format("type {}: more than 2^48 bytes", type.ToString()));
    }
  }
  return OkStatus();
}

Status OpCall::Error(std::string_view message) const {
  return InvalidArgument(fmt::format("{}({}): {}", OpName(op), FormatTypes(operands), message));
}

Status OpCall::RequireOperands(size_t count) const {
  if (operands.size() == count) return OkStatus();
  return Error(fmt::format("needs {} operands, has {}", count, operands.size()));
}

Status OpCall::RequireOperandsOrOneMore(size_t count) const {
  return operands.size() == count + 1 ? OkStatus() : RequireOperands(count);
}

Status OpCall::RequireAccumulator(size_t operand, const TensorType& result) const {
  if (operands.size() <= operand || operands[operand] == result) return OkStatus();
  return Error(fmt::format("operand {} (accumulator) must be {}", operand, result.ToString()));
}

Status OpCall::RequireDeclared(size_t count) const {
  if (declared.size() != count) {
    return Error(fmt::format("needs {} declared result types, has {}", count, declared.size()));
  }
  for (const TensorType& type : declared) MW_TRY(CheckType(type));
  return OkStatus();
}

Status OpCall::RequireFloat(size_t operand) const {
  MW_CHECK(operand < operands.size()) << OpName(op) << " asks for operand " << operand;
  if (IsFloating(operands[operand].dtype)) return OkStatus();
  return Error(fmt::format("operand {} must be floating point", operand));
}

Status OpCall::RequireFloatScalar(size_t operand) const {
  MW_TRY(RequireFloat(operand));
  return RequireRank(operand, 0);
}

Status OpCall::RequireStatisticScalar(size_t operand, size_t of) const {
  MW_CHECK(operand < operands.size() && of < operands.size())
      << OpName(op) << " asks for operands " << operand << " and " << of;
  const TensorType wanted{StatisticDType(operands[of].dtype), {}};
  if (operands[operand] == wanted) return OkStatus();
  return Error(fmt::format("operand {} must be {}, as statistics of operand {} are", operand,
                           wanted.ToString(), of));
}

Status OpCall::RequireSameType(size_t a, size_t b) const {
  MW_CHECK(a < operands.size() && b < operands.size())
      << OpName(op) << " asks for operands " << a << " and " << b;
  if (operands[a] == operands[b]) return OkStatus();
  return Error(fmt::format("operands {} and {} must have the same type", a, b));
}

Status OpCall::RequireRank(size_t operand, int rank) const {
  MW_CHECK(operand < operands.size()) << OpName(op) << " asks for operand " << operand;
  if (operands[operand].rank() == rank) return OkStatus();
  return Error(fmt::format("operand {} must have rank {}", operand, rank));
}

Status OpCall::RequireMinRank(size_t operand, int rank) const {
  MW_CHECK(operand < operands.size()) << OpName(op) << " asks for operand " << operand;
  if (operands[operand].rank() >= rank) return OkStatus();
  return Error(fmt::format("operand {} must have rank {} or more", operand, rank));
}

Result<int64_t> OpCall::IntIn(std::string_view name, int64_t low, int64_t high) const {
  const auto it = attrs.values().find(name);
  if (it == attrs.values().end() || !std::holds_alternative<int64_t>(it->second)) {
    return Fail(Error(fmt::format("needs the integer attribute '{}'", name)));
  }
  const int64_t value = std::get<int64_t>(it->second);
  if (value < low || value > high) {
    return Fail(Error(fmt::format("{}={} must be in [{}, {}]", name, value, low, high)));
  }
  return value;
}

Status OpCall::RealIn(std::string_view name, double low, double high) const {
  if (!attrs.Has(name)) return OkStatus();
  if (!std::holds_alternative<double>(attrs.values().find(name)->second)) {
    return Error(fmt::format("attribute '{}' must be a real number", name));
  }
  const double value = attrs.Real(name);
  if (value >= low && value <= high) return OkStatus();
  return Error(fmt::format("{}={} must be in [{}, {}]", name, value, low, high));
}

Result<DType> OpCall::DTypeOr(DType otherwise) const {
  if (!attrs.Has("dtype")) return otherwise;
  const Result<DType> dtype = ParseDType(attrs.Str("dtype"));
  if (!dtype) return Fail(Error(dtype.error().message()));
  return *dtype;
}

Result<DType> OpCall::FloatDTypeOr(DType otherwise) const {
  MW_ASSIGN_OR_RETURN(const DType dtype, DTypeOr(otherwise));
  if (!IsFloating(dtype)) return Fail(Error("attribute 'dtype' must name a floating point type"));
  return dtype;
}

Result<DType> OpCall::ResultDType(DType operand) const {
  MW_ASSIGN_OR_RETURN(const DType dtype, FloatDTypeOr(operand));
  if (dtype == operand || (ComputesInF32(dtype) && ComputesInF32(operand))) return dtype;
  return Fail(Error(fmt::format("attribute 'dtype' is {}; of {} operands it may be {}",
                                DTypeName(dtype), DTypeName(operand),
                                ComputesInF32(operand) ? "f32, bf16 or f16" : DTypeName(operand))));
}

Status OpCall::RequireShardedRank(int rank) const {
  if (!attrs.Has("global_dims") && !attrs.Has("dim_axes")) return OkStatus();
  const size_t dims = attrs.Ints("global_dims").size();
  const size_t axes = attrs.Strs("dim_axes").size();
  const size_t padded = attrs.Has("padded_dims") ? attrs.Ints("padded_dims").size() : dims;
  if (dims == static_cast<size_t>(rank) && axes == dims && padded == dims) return OkStatus();
  return Error(fmt::format("global_dims has {} and dim_axes {} entries for a tensor of rank {}",
                           dims, axes, rank));
}

ValueId InDType(Builder& builder, ValueId value, DType dtype) {
  if (!builder.status().ok() || builder.type(value).dtype == dtype) return value;
  return builder.AddOne(Op::kCast, {value}, {{"dtype", std::string(DTypeName(dtype))}});
}

ValueId GradCall::InDType(ValueId value, DType dtype) { return ir::InDType(builder, value, dtype); }

ValueId ReduceToSuffix(Builder& builder, ValueId value, const TensorType& suffix) {
  if (!builder.status().ok()) return value;
  const int extra = builder.type(value).rank() - suffix.rank();
  if (extra <= 0) return value;
  std::vector<int64_t> dims;
  for (int i = 0; i < extra; ++i) dims.push_back(i);
  return builder.AddOne(Op::kReduceSum, {value}, {{"dims", dims}});
}

ValueId Broadcast(Builder& builder, ValueId x, std::vector<int64_t> dims, const TensorType& wide) {
  if (!builder.status().ok()) return ValueId();
  return builder.AddOne(Op::kBroadcast, {x}, {{"dims", std::move(dims)}},
                        {{builder.type(x).dtype, wide.dims}});
}

ValueId BroadcastLast(Builder& builder, ValueId x, const TensorType& wide) {
  return Broadcast(builder, x, {wide.rank() - 1}, wide);
}

ValueId SumLast(Builder& builder, ValueId x) {
  if (!builder.status().ok()) return ValueId();
  const int64_t last = builder.type(x).rank() - 1;
  return builder.AddOne(Op::kReduceSum, {x}, {{"dims", std::vector<int64_t>{last}}});
}

GradsOr DecomposedGradient(GradCall& call, Decomposition decompose) {
  Builder& builder = call.builder;
  const size_t first = builder.graph().nodes.size();
  const std::vector<ValueId> results = decompose(builder, call.node);
  MW_TRY(builder.status());
  std::vector<Seed> seeds;
  for (size_t i = 0; i < call.grads.size(); ++i) {
    if (!call.grads[i].valid()) continue;
    MW_CHECK(i < results.size()) << OpName(call.node.op) << " is not made of ops that give result "
                                 << i;
    seeds.push_back({results[i], call.grads[i]});
  }
  std::vector<ValueId> wanted;
  for (size_t i = 0; i < call.node.inputs.size(); ++i) {
    if (call.Wants(i)) wanted.push_back(call.in(i));
  }
  MW_ASSIGN_OR_RETURN(const std::vector<ValueId> found,
                      BackPropagate(builder, seeds, wanted, first));
  std::vector<ValueId> grads;
  size_t next = 0;
  for (size_t i = 0; i < call.node.inputs.size(); ++i) {
    grads.push_back(call.Wants(i) ? found[next++] : ValueId());
  }
  return grads;
}

Status GradCall::RequireOnlyFirstResult() const {
  for (size_t i = 1; i < grads.size(); ++i) {
    if (grads[i].valid()) {
      return Unimplemented(fmt::format("{} has no gradient through its result {}; use result 0",
                                       OpName(node.op), i));
    }
  }
  return OkStatus();
}

RuleBuilder::RuleBuilder(const NodeTypes& node) {
  const auto scalar_dims = [](const TensorType& type) { return TensorFactors(type.dims.size()); };
  for (const TensorType& type : node.operands) rule_.operands.push_back(scalar_dims(type));
  for (const TensorType& type : node.results) rule_.results.push_back(scalar_dims(type));
  rule_.result_partial.assign(node.results.size(), PartialKind::kSum);
  rule_.linear_operands.assign(node.operands.size(), false);
}

FactorIndex RuleBuilder::Add(int64_t size, FactorKind kind) {
  MW_CHECK(size >= 0) << "a factor of " << size;
  rule_.factors.push_back(Factor{size, kind});
  return static_cast<FactorIndex>(rule_.factors.size()) - 1;
}

std::vector<FactorIndex> RuleBuilder::AddDims(std::span<const int64_t> dims) {
  std::vector<FactorIndex> factors;
  for (int64_t dim : dims) factors.push_back(Add(dim));
  return factors;
}

namespace {
TensorFactors Single(const std::vector<FactorIndex>& dims) {
  TensorFactors result;
  for (FactorIndex factor : dims) result.push_back({factor});
  return result;
}
}  // namespace

void RuleBuilder::Operand(size_t i, const std::vector<FactorIndex>& dims) {
  OperandDims(i, Single(dims));
}
void RuleBuilder::Result(size_t i, const std::vector<FactorIndex>& dims) {
  ResultDims(i, Single(dims));
}
void RuleBuilder::OperandDims(size_t i, TensorFactors dims) {
  MW_CHECK(dims.size() == rule_.operands[i].size()) << "operand " << i;
  rule_.operands[i] = std::move(dims);
}
void RuleBuilder::ResultDims(size_t i, TensorFactors dims) {
  MW_CHECK(dims.size() == rule_.results[i].size()) << "result " << i;
  rule_.results[i] = std::move(dims);
}
void RuleBuilder::Partial(size_t result, PartialKind kind) { rule_.result_partial[result] = kind; }
void RuleBuilder::Linear(size_t operand) { rule_.linear_operands[operand] = true; }
void RuleBuilder::AllLinear() { rule_.linear_operands.assign(rule_.linear_operands.size(), true); }

FactorRule RuleBuilder::Finish() {
  std::vector<bool> in_result(rule_.factors.size(), false);
  for (const TensorFactors& result : rule_.results) {
    for (const DimFactors& dim : result) {
      for (FactorIndex factor : dim) in_result[static_cast<size_t>(factor)] = true;
    }
  }
  for (size_t i = 0; i < rule_.factors.size(); ++i) {
    Factor& factor = rule_.factors[i];
    if (factor.kind == FactorKind::kParallel && !in_result[i]) factor.kind = FactorKind::kReduced;
  }
  return std::move(rule_);
}

RuleBuilder SuffixRule(const NodeTypes& node) {
  RuleBuilder rule(node);
  size_t rank = 0;
  const TensorType* widest = nullptr;
  const auto widen = [&](const TensorType& type) {
    if (!widest || type.dims.size() > rank) {
      widest = &type;
      rank = type.dims.size();
    }
  };
  for (const TensorType& type : node.operands) widen(type);
  for (const TensorType& type : node.results) widen(type);
  if (!widest) return rule;
  const std::vector<FactorIndex> factors = rule.AddDims(widest->dims);
  const auto tail = [&](size_t count) {
    return std::vector<FactorIndex>(factors.end() - static_cast<ptrdiff_t>(count), factors.end());
  };
  for (size_t i = 0; i < node.operands.size(); ++i)
    rule.Operand(i, tail(node.operands[i].dims.size()));
  for (size_t i = 0; i < node.results.size(); ++i)
    rule.Result(i, tail(node.results[i].dims.size()));
  return rule;
}

FactorRule PlainRule(const NodeTypes& node) { return SuffixRule(node).Finish(); }

}  // namespace meshwright::ir
