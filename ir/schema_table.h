// The table behind ir/schema.h: one row of functions per op, filled by the op families. Internal to
// ir/.
//
// A family file (ir/schema_<family>.cc) defines the rows of its ops and one
// Add<Family>Schemas(table). The rows see types only, so that the same rule serves logical graphs
// and local pieces; gradients see the builder. Thread rule: the table is built once and immutable;
// all functions are pure.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/builder.h"
#include "ir/graph.h"
#include "ir/schema.h"

namespace meshwright::ir {

// One use of an op, as seen by shape rules. The views must outlive the call.
struct OpCall {
  Op op;
  const Attrs& attrs;
  std::span<const TensorType> operands;
  std::span<const TensorType> declared;  // wanted result types; may be empty

  // kInvalidArgument "op(types): message".
  Status Error(std::string_view message) const;
  Status RequireOperands(size_t count) const;
  // `count` operands, or the accumulator behind them.
  Status RequireOperandsOrOneMore(size_t count) const;
  // The accumulator, if it is there, has the type of the result that it is added to.
  Status RequireAccumulator(size_t operand, const TensorType& result) const;
  Status RequireDeclared(size_t count) const;
  Status RequireFloat(size_t operand) const;
  Status RequireFloatScalar(size_t operand) const;
  // A scalar in the dtype of the statistics of operand `of`: kernels read both as one C++ type.
  Status RequireStatisticScalar(size_t operand, size_t of) const;
  Status RequireSameType(size_t a, size_t b) const;
  Status RequireRank(size_t operand, int rank) const;
  Status RequireMinRank(size_t operand, int rank) const;
  // The integer attribute, in [low, high].
  Result<int64_t> IntIn(std::string_view name, int64_t low, int64_t high) const;
  // The real attribute when present must lie in [low, high].
  Status RealIn(std::string_view name, double low, double high) const;
  // The type that the attribute 'dtype' names; `otherwise` when there is none. FloatDTypeOr: a
  // float.
  Result<DType> DTypeOr(DType otherwise) const;
  Result<DType> FloatDTypeOr(DType otherwise) const;
  // The same for an op that computes in f32 what it reads and writes: it may only tell apart f32
  // and the 16-bit types.
  Result<DType> ResultDType(DType operand) const;
  // Sharded-dims attributes, when present, must describe a tensor of this rank.
  Status RequireShardedRank(int rank) const;
};

using TypesOr = Result<std::vector<TensorType>>;

// One node with its types, as seen by factor rules and costs.
struct NodeTypes {
  Op op;
  const Attrs& attrs;
  std::vector<TensorType> operands;
  std::vector<TensorType> results;
};

using GradsOr = Result<std::vector<ValueId>>;

// One node to differentiate. `node` is a copy: the builder's nodes move while gradients are
// appended.
struct GradCall {
  Builder& builder;
  Node node;
  std::vector<ValueId> grads;  // per result, invalid: none
  std::vector<bool> wanted;    // per operand; empty: all

  bool Wants(size_t operand) const { return wanted.empty() || wanted[operand]; }
  ValueId in(size_t i) const { return node.inputs[i]; }
  const TensorType& in_type(size_t i) const { return builder.type(node.inputs[i]); }
  // `value`, behind a cast when it has another type.
  ValueId InDType(ValueId value, DType dtype);
  // kUnimplemented when a result other than the first has a gradient.
  Status RequireOnlyFirstResult() const;
};

// Which results may take their operand's memory while the node runs.
enum class InPlace : uint8_t {
  kNever,
  kFirst,      // result 0 that of operand 0
  kEach,       // result i that of operand i
  kOptimizer,  // (p, g, m, v) -> (p, m, v): each that of the tensor it renews
  kPages,      // (q, k, v, pages, ...) -> (o, lse, pages): the pages theirs
};

// Of OpSchema::results.
inline constexpr int kOnePerOperand = 0;
inline constexpr int kFromAttrs = -1;  // as many as the attribute 'results' lists

struct OpSchema {
  TypesOr (*infer)(const OpCall&) = nullptr;
  FactorRule (*rule)(const NodeTypes&) = nullptr;  // null: none (collectives)
  double (*flops)(const NodeTypes&) = nullptr;     // null: one per element of the first result
  double (*bytes)(const NodeTypes&) = nullptr;     // null: all operands and results once
  GradsOr (*gradient)(GradCall&) = nullptr;        // null: no gradient
  int results = 1;                                 // how many
  InPlace in_place = InPlace::kNever;
  std::optional<Accumulator> accumulator = std::nullopt;
  bool stops_gradient = false;
  std::optional<Positioned> position = std::nullopt;
  // The attribute without which there is none, or only where `position->dim` is split.
  const char* position_needs = nullptr;
};

using SchemaTable = std::array<OpSchema, kOpCount>;

inline OpSchema& Row(SchemaTable& table, Op op) { return table[static_cast<size_t>(op)]; }

void AddSourceSchemas(SchemaTable& table);
void AddElementwiseSchemas(SchemaTable& table);
void AddStructureSchemas(SchemaTable& table);
void AddContractionSchemas(SchemaTable& table);
void AddNormSchemas(SchemaTable& table);
void AddSoftmaxSchemas(SchemaTable& table);
void AddChoiceSchemas(SchemaTable& table);
void AddExpertSchemas(SchemaTable& table);
void AddImageSchemas(SchemaTable& table);
void AddAttentionSchemas(SchemaTable& table);
void AddPagedSchemas(SchemaTable& table);
void AddEmbeddingSchemas(SchemaTable& table);
void AddLossSchemas(SchemaTable& table);
void AddOptimizerSchemas(SchemaTable& table);
void AddCollectiveSchemas(SchemaTable& table);
void AddFusedSchemas(SchemaTable& table);

// Statistics (means, log-sum-exp, losses) of 16-bit tensors are kept in f32; wider types keep their
// own.
DType StatisticDType(DType dtype);

// "f32[8,16], i32[8]"
std::string FormatTypes(std::span<const TensorType> types);

// kInvalidArgument unless all dims are >= 1 and the bytes are at most 2^48, so that sums over a
// graph cannot overflow.
Status CheckType(const TensorType& type);

// Builds a FactorRule: make factors, lay them out over operands and results, then Finish() decides
// what is reduced.
class RuleBuilder {
 public:
  explicit RuleBuilder(const NodeTypes& node);

  FactorIndex Add(int64_t size, FactorKind kind = FactorKind::kParallel);
  FactorIndex AddWhole(int64_t size) { return Add(size, FactorKind::kWhole); }
  // One parallel factor per dim of `dims`.
  std::vector<FactorIndex> AddDims(std::span<const int64_t> dims);

  // Each dim of the tensor is one factor.
  void Operand(size_t i, const std::vector<FactorIndex>& dims);
  void Result(size_t i, const std::vector<FactorIndex>& dims);
  // Dims that may be compound.
  void OperandDims(size_t i, TensorFactors dims);
  void ResultDims(size_t i, TensorFactors dims);
  void Partial(size_t result, PartialKind kind);
  void Linear(size_t operand);
  void AllLinear();

  // Parallel factors that no result has become kReduced.
  FactorRule Finish();

 private:
  FactorRule rule_;
};

// Rule of an op whose operands all have the result's shape or a suffix of it: dims parallel,
// aligned from the right.
RuleBuilder SuffixRule(const NodeTypes& node);

// The rows of operands and results that are all of one shape, dims parallel; also where y's is a
// suffix.
FactorRule PlainRule(const NodeTypes& node);

// ---- Gradients out of smaller ops ---------------------------------------------------------------

// The sum over the leading dims that `suffix` does not have.
ValueId ReduceToSuffix(Builder& builder, ValueId value, const TensorType& suffix);
// x along new dims (ascending places in the result) of the type `wide`, whatever its element type.
ValueId Broadcast(Builder& builder, ValueId x, std::vector<int64_t> dims, const TensorType& wide);
// x[...] as the last dim of `wide`, every element once; sums over that dim.
ValueId BroadcastLast(Builder& builder, ValueId x, const TensorType& wide);
ValueId SumLast(Builder& builder, ValueId x);
// `value` in the type: itself, or behind a cast.
ValueId InDType(Builder& builder, ValueId value, DType dtype);

// The gradient of a node whose results are also those of other ops, which have gradients:
// `decompose` appends them and returns the results. How gradients of large ops are differentiated
// again.
using Decomposition = std::vector<ValueId> (*)(Builder& builder, const Node& node);
GradsOr DecomposedGradient(GradCall& call, Decomposition decompose);

// The cost of ops that only move or name values.
inline double NoFlops(const NodeTypes&) { return 0; }

}  // namespace meshwright::ir
