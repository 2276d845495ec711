// The body of a `fused` node: ops that one kernel computes in one pass over its tensors. The
// executable compiler makes them (compile/compile.h); nothing else does.
//
// Values of a body are numbered: the node's operands first, then every result of every step in
// order. In text a step is "add(2,1)" or "scale(0) {factor=0.5}".
//
// Thread rule: pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"

namespace meshwright::ir {

inline constexpr size_t kMaxFusedSteps = 64;

struct FusedStep {
  Op op = Op::kAdd;
  std::vector<int> operands;
  Attrs attrs;
  friend bool operator==(const FusedStep&, const FusedStep&) = default;
};

struct FusedBody {
  std::vector<FusedStep> steps;
  std::vector<int> results;  // values that the node returns, in order
  friend bool operator==(const FusedBody&, const FusedBody&) = default;
};

// Ops whose result has the shape of operand 0 and is computed element by element.
bool IsElementwise(Op op);
// reduce_sum over the first dims only: a sum per column.
bool IsColumnSum(const Node& node);

// Whether the op may be a step: its result types follow from its operands and attributes, and it
// is no source, optimizer or collective.
bool MayBeFused(Op op);

// The attributes {body:strs, results:ints} of a fused node.
void SetFusedBody(const FusedBody& body, Attrs& attrs);
// Errors: kInvalidArgument: a step that cannot be read or that MayBeFused refuses, or too many.
Result<FusedBody> ParseFusedBody(const Attrs& attrs);

// The body as a graph with one `input` node per operand ("0", "1", ...) and one output per result;
// value i of the body is value i of the graph.
// Errors: kInvalidArgument naming the step.
Result<Graph> ExpandFused(const Attrs& attrs, std::span<const TensorType> operands);

}  // namespace meshwright::ir
