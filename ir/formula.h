// Formula: what an elementwise op computes, as steps of native ops; and the text that it is said
// in.
//
// A native op is one that every backend knows as a function of numbers: add, exp, relu. All other
// elementwise ops, and the gradients of all of them, are text over native ops:
// "relu(a) + log1p(exp(-abs(a)))". The text is read once; backends run the steps over spans of
// elements (ops/cpu, ops/reference) or write them into the text of a kernel (ops/cuda), and
// gradients become nodes of the graph, so that they can be differentiated again.
//
// Grammar: + - * / with their usual ranks, unary -, numbers, names, calls. A call names an op.
// Numbers may be added to, subtracted from and multiplied with values; such a step is `shift` or
// `scale`. Thread rule: pure functions; a Formula is immutable.
#pragma once

#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/attrs.h"
#include "ir/op.h"

namespace meshwright::ir {

// One native op. Its operands are numbered values: the names of the formula first, then the results
// of the steps before.
struct FormulaStep {
  Op op = Op::kAdd;
  int count = 0;  // operands
  std::array<int, 3> operands = {};
  double value = 0;          // of scale and shift
  bool takes_attrs = false;  // the step is the node's own op, with its attributes
};

struct Formula {
  int names = 0;
  // The last one's result is the formula's. None: `result` is one of the names.
  std::vector<FormulaStep> steps;
  int result = 0;
};

// `self` is what the text may call `self(...)`: that op with the attributes of the node.
// Errors: kInvalidArgument naming the place: unknown names or ops, a number where a value is
// needed.
Result<Formula> ParseFormula(std::string_view text, std::span<const std::string_view> names,
                             Op self);

// The constant of a step of scale or shift: its own, or the attribute of the node.
double ConstantOf(const FormulaStep& step, const Attrs& attrs);

}  // namespace meshwright::ir
