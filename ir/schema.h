// What is known about each op: how many results, shape rule, factor rule, cost, gradient and what
// may run in place. One file per op family implements them (ir/schema_*.cc); nothing else in the
// house switches over ops to learn about shapes, splitting or memory.
//
// Factor rule: every dim of every operand and result is an ordered list of factors, major first.
// Splitting a factor over mesh axes splits every dim that has it as its major factor. A parallel
// factor appears in results; a reduced one only in operands: splitting it makes each result of the
// node partial; a whole one must not be split.
//   einsum bsk,kn->bsn: b, s, n parallel; k reduced(sum).  attention: b parallel, kv head g
//   parallel (the q head dim is the compound (g, r)), queries s a sequence, keys and e whole.
//   layer_norm_grad: leading dims parallel for dx and reduced(sum) for dw, db.
// Source: einsum-like rules after Shardy's.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"

namespace meshwright::ir {

// kSequence: parallel to axes that split the tokens of a row, whole to all others. kWithin: whole
// to the op's kernel, and split where what stands for the op (planner/expansions.h) sums over
// devices.
enum class FactorKind : uint8_t { kParallel, kReduced, kWhole, kSequence, kWithin };
// Kernels need it in one piece.
inline bool NeededWhole(FactorKind kind) {
  return kind == FactorKind::kWhole || kind == FactorKind::kWithin;
}
enum class PartialKind : uint8_t { kSum, kMax, kLogSumExp };

struct Factor {
  int64_t size = 1;
  FactorKind kind = FactorKind::kParallel;
};

// An index into FactorRule::factors; the factors of one dim, major first, whose sizes multiply to
// the dim; those of all dims.
using FactorIndex = int;
using DimFactors = std::vector<FactorIndex>;
using TensorFactors = std::vector<DimFactors>;

struct FactorRule {
  std::vector<Factor> factors;
  std::vector<TensorFactors> operands;
  std::vector<TensorFactors> results;
  // Per result: how it combines when a factor that this result does not have, but some operand has,
  // is split. A factor may be parallel for one result (dx) and reduced for another (dw): "reduced"
  // is decided per result by absence, and Factor::kind is kReduced only when no result has it.
  std::vector<PartialKind> result_partial;
  // Operands whose partial(sum) may pass through (the op is linear in them and all others are not
  // partial), e.g. both operands of add together, scale, slice, reshape. For `sum`/`add` all
  // operands must be partial alike.
  std::vector<bool> linear_operands;
};

struct OpCost {
  double flops = 0;
  double bytes = 0;  // read + written once
};

// How many results a node has.
size_t ResultCount(Op op, const Attrs& attrs, size_t operand_count);

// The operand whose memory result `result` may take while the node runs, when both have as many
// bytes and nothing else needs the operand's old value; none: their memory must be apart. Kernels
// and collectives are safe in these cases and in no others.
std::optional<size_t> InPlaceOperand(Op op, size_t result);

// Ops with an optional last operand that is added to one of their results, in its place. With it,
// what the result sums over cannot be split: every part would add it.
struct Accumulator {
  size_t result = 0;
  size_t operand = 0;
};
std::optional<Accumulator> AccumulatorOf(Op op);

// A result that replaces an operand, a param, in the job's state when the node has run.
struct Renewed {
  size_t result = 0;
  size_t operand = 0;
};
std::vector<Renewed> RenewedOf(Op op);

// The tensor whose place in the global one the op's results depend on: it carries the attributes of
// "Sharded dims" in ir/op.h once it is split. Nothing: the op is the same everywhere.
struct Positioned {
  bool is_result = false;
  size_t index = 0;  // of the operand, or of the result
  // The only dim whose splitting matters; none: that of any does.
  std::optional<int> dim = std::nullopt;
};
std::optional<Positioned> PositionsOf(const Node& node);

// Result types of a node; checks operand count, ranks, shapes, dtypes and attributes. reshape,
// param, input, feed, constant, random_normal and the collectives need `declared` (the wanted
// result types), which is checked; for others it may be empty.
// Errors: kInvalidArgument naming op, operand and shapes.
Result<std::vector<TensorType>> InferTypes(Op op, const Attrs& attrs,
                                           std::span<const TensorType> operands,
                                           std::span<const TensorType> declared);

// Factor rule of a node given its (global) types. Collectives and fused have none
// (kInvalidArgument).
Result<FactorRule> RuleOf(const Graph& graph, const Node& node);

// Flops (multiply and add count apart; causal attention half) and bytes of one execution.
OpCost CostOf(const Graph& graph, const Node& node);

// Whether a `feed` has a row for each row of the batch, along its first dim.
bool IsBatchFeed(const Node& feed);

class Builder;

// Whether the op can stand between a param and the loss.
bool HasGradient(Op op);
// Whether its results are treated as constants: sign, noise, stop_gradient.
bool StopsGradient(Op op);

// Appends to `builder` the nodes that compute the gradients of node's inputs. result_grads[i] is
// the gradient of node.outputs[i] or an invalid id when it does not reach the loss. Returns one id
// per input, invalid where there is none (integer operands, saved statistics). Those of operands
// that are not `wanted` may be left out; without the list all are. Errors: kUnimplemented naming an
// op without gradient.
Result<std::vector<ValueId>> GradientOf(Builder& builder, const Node& node,
                                        std::span<const ValueId> result_grads,
                                        const std::vector<bool>& wanted = {});

}  // namespace meshwright::ir
