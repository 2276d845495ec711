// Formulas of elementwise ops: what their text means, and that the table is whole.
#include "ir/formula.h"

#include <gtest/gtest.h>

#include <string>

#include "ir/elementwise.h"

namespace meshwright::ir {
namespace {

constexpr std::string_view kTwo[] = {"a", "b"};

// "mul(0,1); shift(2)+1"
std::string Spell(const Formula& formula) {
  std::string text;
  for (const FormulaStep& step : formula.steps) {
    if (!text.empty()) text += "; ";
    text += std::string(OpName(step.op)) + "(";
    for (int k = 0; k < step.count; ++k) {
      text += (k == 0 ? "" : ",") + std::to_string(step.operands[static_cast<size_t>(k)]);
    }
    text += ")";
    if (step.op == Op::kScale || step.op == Op::kShift) {
      text += " " + std::to_string(step.value).substr(0, 5);
    }
  }
  return text + " -> " + std::to_string(formula.result);
}

std::string Parsed(std::string_view text) {
  const Result<Formula> formula = ParseFormula(text, kTwo, Op::kScale);
  return formula.has_value() ? Spell(*formula) : formula.error().message();
}

TEST(ParseFormula, KnowsTheRanksOfOperators) {
  EXPECT_EQ(Parsed("a + b * a"), "mul(1,0); add(0,2) -> 3");
  EXPECT_EQ(Parsed("(a + b) * a"), "add(0,1); mul(2,0) -> 3");
  EXPECT_EQ(Parsed("a - b - a"), "sub(0,1); sub(2,0) -> 3");
  EXPECT_EQ(Parsed("a / b * a"), "divide(0,1); mul(2,0) -> 3");
  EXPECT_EQ(Parsed("a"), " -> 0");
}

TEST(ParseFormula, MakesNumbersFactorsAndSummands) {
  EXPECT_EQ(Parsed("2 * a"), "scale(0) 2.000 -> 2");
  EXPECT_EQ(Parsed("1 - a"), "scale(0) -1.00; shift(2) 1.000 -> 3");
  EXPECT_EQ(Parsed("a - 1"), "shift(0) -1.00 -> 2");
  EXPECT_EQ(Parsed("-(a * b)"), "mul(0,1); scale(2) -1.00 -> 3");
  EXPECT_EQ(Parsed("2 * 3 * a + (1 - 4)"), "scale(0) 6.000; shift(2) -3.00 -> 3");
}

TEST(ParseFormula, CallsOpsByTheirNames) {
  EXPECT_EQ(Parsed("gate(-a, relu(b))"), "scale(0) -1.00; relu(1); gate(2,3) -> 4");
  const Result<Formula> own = ParseFormula("self(b)", kTwo, Op::kScale);
  ASSERT_TRUE(own.has_value());
  EXPECT_TRUE(own->steps[0].takes_attrs);
  EXPECT_EQ(ConstantOf(own->steps[0], {{"factor", 2.5}}), 2.5);
}

TEST(ParseFormula, SaysWhatIsWrongAndWhere) {
  EXPECT_EQ(Parsed("a + c"), "formula 'a + c', at 5: 'c' is no value");
  EXPECT_EQ(Parsed("a b"), "formula 'a b', at 2: an operator or the end was expected");
  EXPECT_EQ(Parsed("1 + 2"), "formula '1 + 2', at 5: a formula must depend on a value");
  EXPECT_EQ(Parsed("exp(1)"), "formula 'exp(1)', at 5: a number cannot be an operand");
  EXPECT_NE(Parsed("exq(a)").find("unknown op 'exq'"), std::string::npos);
  EXPECT_NE(Parsed("(a").find("')' was expected"), std::string::npos);
}

// Backends see native ops alone.
TEST(ElementwiseTable, FormulasCallNativeOpsOnly) {
  for (const ElementwiseRow& row : ElementwiseRows()) {
    const Formula* formula = FormulaOf(row.op);
    ASSERT_NE(formula, nullptr);
    EXPECT_EQ(formula->names, row.operands) << OpName(row.op);
    for (const FormulaStep& step : formula->steps) {
      const ElementwiseRow* called = ElementwiseRowOf(step.op);
      ASSERT_NE(called, nullptr) << OpName(row.op);
      EXPECT_TRUE(called->formula.empty()) << OpName(row.op) << " calls " << OpName(step.op);
    }
  }
  EXPECT_EQ(FormulaOf(Op::kEinsum), nullptr);
}

TEST(ParseFormula, HowDeepItNestsIsBounded) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '(') + "a" + std::string(depth, ')');
  };
  EXPECT_TRUE(ParseFormula(nested(100), kTwo, Op::kScale).has_value());
  for (const std::string& deep : {nested(100'000), std::string(100'000, '-') + "a"}) {
    const Result<Formula> formula = ParseFormula(deep, kTwo, Op::kScale);
    ASSERT_FALSE(formula.has_value());
    EXPECT_NE(formula.error().message().find("nests deeper than 200"), std::string::npos);
  }
}

}  // namespace
}  // namespace meshwright::ir
