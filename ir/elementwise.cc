#include "ir/elementwise.h"

#include <optional>
#include <vector>

#include "base/check.h"

namespace meshwright::ir {
namespace {

using enum Takes;

// What a tanh or exp costs.
constexpr double kCurve = 12;

// Ties of maximum and minimum belong to the first operand. The second derivatives of the gates:
// silu' = s (1 + x (1 - s)) with s = sigmoid(x); gelu(x) = x s(2u), u = 0.797885 (x + 0.044715
// x^3).
constexpr ElementwiseRow kRows[] = {
    {Op::kAdd, kNumbers, 2, 1, "", {"g", "g"}, {true, true}},
    {Op::kSub, kNumbers, 2, 1, "", {"g", "-g"}, {true, true}},
    {Op::kMul, kNumbers, 2, 1, "", {"g * b", "g * a"}, {true, true}},
    {Op::kDivide, kFloats, 2, 1, "", {"g / b", "-(g * y / b)"}, {true, false}},
    {Op::kPow, kFloats, 2, 2 * kCurve, "", {"g * b * pow(a, b - 1)", "g * y * log(a)"}},
    {Op::kMaximum, kNumbers, 2, 1, "", {"g - gate(-(a - b), g)", "gate(-(a - b), g)"}},
    {Op::kMinimum, kNumbers, 2, 1, "", {"g - gate(a - b, g)", "gate(a - b, g)"}},
    {Op::kGate, kFloats, 2, 1, "", {"", "gate(a, g)"}},
    {Op::kScale, kFloats, 1, 1, "", {"self(g)"}, {true}},
    {Op::kShift, kFloats, 1, 1, "", {"g"}},
    {Op::kMulScalar, kScalar, 2, 1, "a * b", {"mul_scalar(g, b)", "g * a"}, {true, false}},
    {Op::kAbs, kNumbers, 1, 1, "", {"g * sign(a)"}},
    {Op::kSign, kNumbers, 1, 1, ""},
    {Op::kRelu, kFloats, 1, 1, "", {"gate(a, g)"}},
    {Op::kExp, kFloats, 1, kCurve, "", {"g * y"}},
    {Op::kLog, kFloats, 1, kCurve, "", {"g / a"}},
    {Op::kLog1p, kFloats, 1, kCurve, "", {"g / (a + 1)"}},
    {Op::kSqrt, kFloats, 1, 4, "", {"0.5 * (g / y)"}},
    {Op::kRsqrt, kFloats, 1, 4, "", {"-0.5 * g * y / a"}},
    {Op::kTanh, kFloats, 1, kCurve, "", {"g * (1 - y * y)"}},
    {Op::kSigmoid, kFloats, 1, kCurve, "", {"g * y * (1 - y)"}},
    {Op::kErf, kFloats, 1, kCurve, "", {"1.1283791670955126 * g * exp(-(a * a))"}},
    {Op::kSoftplus, kFloats, 1, 2 * kCurve, "relu(a) + log1p(exp(-abs(a)))", {"g * sigmoid(a)"}},
    {Op::kGelu, kFloats, 1, kCurve, "", {"gelu_grad(a, g)"}},
    {Op::kGeluGrad,
     kFloats,
     2,
     kCurve,
     "",
     {"g * b * (1 - square(tanh(0.7978845608028654 * (a + 0.044715 * a * a * a))))"
      " * (0.7978845608028654 * (1 + 0.134145 * a * a)"
      " + 0.10703222440890037 * a * a"
      " - a * square(0.7978845608028654 * (1 + 0.134145 * a * a))"
      " * tanh(0.7978845608028654 * (a + 0.044715 * a * a * a)))",
      "gelu_grad(a, g)"}},
    {Op::kGeluErf,
     kFloats,
     1,
     kCurve,
     "0.5 * a * (1 + erf(0.7071067811865476 * a))",
     {"g * (0.5 * (1 + erf(0.7071067811865476 * a))"
      " + 0.3989422804014327 * a * exp(-0.5 * a * a))"}},
    {Op::kSilu, kFloats, 1, kCurve, "", {"silu_grad(a, g)"}},
    {Op::kSiluGrad,
     kFloats,
     2,
     kCurve,
     "",
     {"g * b * sigmoid(a) * (1 - sigmoid(a)) * (2 + a * (1 - 2 * sigmoid(a)))", "silu_grad(a, g)"}},
    {Op::kSquare, kFloats, 1, 1, "a * a", {"2 * g * a"}},
    {Op::kStopGradient, kFloats, 1, 1, "1 * a"},
    {Op::kEqual, kCompares, 2, 1, ""},
    {Op::kNotEqual, kCompares, 2, 1, "logical_not(equal(a, b))"},
    {Op::kLess, kCompares, 2, 1, ""},
    {Op::kLessEqual, kCompares, 2, 1, ""},
    {Op::kGreater, kCompares, 2, 1, "less(b, a)"},
    {Op::kGreaterEqual, kCompares, 2, 1, "less_equal(b, a)"},
    {Op::kLogicalAnd, kBools, 2, 1, "minimum(a, b)"},
    {Op::kLogicalOr, kBools, 2, 1, "maximum(a, b)"},
    {Op::kLogicalNot, kBools, 1, 1, "1 - a"},
    {Op::kSelect, kSelects, 3, 1, ""},
};

struct Parsed {
  const ElementwiseRow* row = nullptr;
  Formula formula;
  std::array<std::optional<Formula>, 3> gradients;
};

constexpr std::string_view kOperandNames[] = {"a", "b", "c"};

Formula MustParse(std::string_view text, std::span<const std::string_view> names, Op self) {
  Result<Formula> formula = ParseFormula(text, names, self);
  MW_CHECK(formula.has_value()) << formula.error().message();
  return *std::move(formula);
}

Parsed ParseRow(const ElementwiseRow& row) {
  MW_CHECK(row.operands >= 1 && row.operands <= 3) << OpName(row.op) << " of " << row.operands;
  Parsed parsed{&row, {}, {}};
  const std::span<const std::string_view> names(kOperandNames, static_cast<size_t>(row.operands));
  if (row.formula.empty()) {
    parsed.formula.names = row.operands;
    parsed.formula.steps = {{row.op, row.operands, {0, 1, 2}, 0, true}};
    parsed.formula.result = row.operands;
  } else {
    parsed.formula = MustParse(row.formula, names, row.op);
  }
  std::vector<std::string_view> of_gradient(names.begin(), names.end());
  of_gradient.insert(of_gradient.end(), {"y", "g"});
  for (size_t i = 0; i < row.gradients.size(); ++i) {
    if (!row.gradients[i].empty()) {
      parsed.gradients[i] = MustParse(row.gradients[i], of_gradient, row.op);
    }
  }
  return parsed;
}

// Calls of ops that are no native ones are replaced by their formulas, so that backends see native
// ops only.
void Inline(const std::array<Parsed, kOpCount>& table, Formula& formula) {
  Formula flat{formula.names, {}, 0};
  std::vector<int> numbers(static_cast<size_t>(formula.names));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int>(i);
  const auto append = [&](FormulaStep step, const auto& number) {
    MW_CHECK(step.count >= 1 && step.count <= 3) << OpName(step.op) << " of " << step.count;
    for (int k = 0; k < step.count; ++k) {
      int& operand = step.operands[static_cast<size_t>(k)];
      operand = number(operand);
    }
    flat.steps.push_back(step);
    return flat.names + static_cast<int>(flat.steps.size()) - 1;
  };
  for (const FormulaStep& step : formula.steps) {
    const auto outer = [&](int value) { return numbers[static_cast<size_t>(value)]; };
    const Parsed& called = table[static_cast<size_t>(step.op)];
    MW_CHECK(called.row != nullptr) << OpName(step.op) << " is no elementwise op";
    if (called.row->formula.empty()) {
      numbers.push_back(append(step, outer));
      continue;
    }
    std::vector<int> inner;
    for (int k = 0; k < step.count; ++k)
      inner.push_back(outer(step.operands[static_cast<size_t>(k)]));
    for (const FormulaStep& own : called.formula.steps) {
      inner.push_back(append(own, [&](int value) { return inner[static_cast<size_t>(value)]; }));
    }
    numbers.push_back(inner[static_cast<size_t>(called.formula.result)]);
  }
  flat.result = numbers[static_cast<size_t>(formula.result)];
  formula = std::move(flat);
}

const std::array<Parsed, kOpCount>& Table() {
  static const std::array<Parsed, kOpCount> table = [] {
    std::array<Parsed, kOpCount> rows;
    for (const ElementwiseRow& row : kRows) rows[static_cast<size_t>(row.op)] = ParseRow(row);
    for (const ElementwiseRow& row : kRows) Inline(rows, rows[static_cast<size_t>(row.op)].formula);
    return rows;
  }();
  return table;
}

}  // namespace

std::span<const ElementwiseRow> ElementwiseRows() { return kRows; }

const ElementwiseRow* ElementwiseRowOf(Op op) { return Table()[static_cast<size_t>(op)].row; }

const Formula* FormulaOf(Op op) {
  const Parsed& parsed = Table()[static_cast<size_t>(op)];
  return parsed.row == nullptr ? nullptr : &parsed.formula;
}

const Formula* GradientFormulaOf(Op op, size_t operand) {
  const Parsed& parsed = Table()[static_cast<size_t>(op)];
  MW_CHECK(parsed.row != nullptr) << OpName(op) << " is not in the table of elementwise ops";
  MW_CHECK(operand < parsed.gradients.size()) << "operand " << operand << " of " << OpName(op);
  return parsed.gradients[operand] ? &*parsed.gradients[operand] : nullptr;
}

}  // namespace meshwright::ir
