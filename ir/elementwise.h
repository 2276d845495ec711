// The table of elementwise ops: one row says what an op takes, what it computes and its gradient.
//
// A new op is a row here and, where its formula needs a function that no other op has, a case in
// each of ops/reference/formula.cc, ops/cpu/vec_math.cc and ops/cuda/chain_prelude.cc. Shape rule,
// factor rule, cost and all kernels follow from the row.
//
// Ops that are elementwise and not here: cast (by types), sum (any number of operands), dropout (by
// position). Thread rule: immutable.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "ir/formula.h"

namespace meshwright::ir {

// Element types of operands and result.
enum class Takes : uint8_t {
  kFloats,    // floats -> the same
  kNumbers,   // floats or i32 -> the same
  kCompares,  // floats or i32 -> bool
  kBools,     // bool -> bool
  kSelects,   // (bool, x, x) -> x, of any type
  kScalar,    // (float, a scalar of the statistics' type) -> the first
};

struct ElementwiseRow {
  Op op;
  Takes takes;
  int operands;
  // Multiply-adds that an element costs, about.
  double flops;
  // Of the operands a, b, c; "" for a native op.
  std::string_view formula;
  // Per operand the product of the derivative and g, the gradient of the result y; "": none.
  std::array<std::string_view, 3> gradients = {};
  // Operands in which it is linear when they have one shape; with other shapes the first alone.
  std::array<bool, 2> linear = {};
};

std::span<const ElementwiseRow> ElementwiseRows();
// Null when the op is none of them.
const ElementwiseRow* ElementwiseRowOf(Op op);

// What the op computes; of a native op one step. Null when it is none of the table.
const Formula* FormulaOf(Op op);
// The gradient of the operand over the names a, b, c, y, g (as many of a, b, c as operands); null:
// none. REQUIRES an op of the table.
const Formula* GradientFormulaOf(Op op, size_t operand);

}  // namespace meshwright::ir
