#include "ir/formula.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <string>

#include "base/check.h"

namespace meshwright::ir {
namespace {

// A part of a formula: a value by its number, or a number.
struct Term {
  int value = -1;
  std::optional<double> number;
};

class Parser {
 public:
  Parser(std::string_view text, std::span<const std::string_view> names, Op self)
      : text_(text), names_(names), self_(self) {
    formula_.names = static_cast<int>(names.size());
  }

  Result<Formula> Run() {
    MW_ASSIGN_OR_RETURN(const Term term, Sum());
    Skip();
    if (at_ != text_.size()) return Fail(Error("an operator or the end was expected"));
    if (term.number) return Fail(Error("a formula must depend on a value"));
    formula_.result = term.value;
    return std::move(formula_);
  }

 private:
  Status Error(std::string_view what) const {
    return InvalidArgument(fmt::format("formula '{}', at {}: {}", text_, at_, what));
  }
  void Skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool Take(char wanted) {
    Skip();
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  Term Step(Op op, const std::vector<Term>& operands, double value = 0, bool takes_attrs = false) {
    MW_CHECK(!operands.empty() && operands.size() <= 3) << OpName(op) << " of " << operands.size();
    FormulaStep step{op, static_cast<int>(operands.size()), {}, value, takes_attrs};
    for (size_t i = 0; i < operands.size(); ++i) step.operands[i] = operands[i].value;
    formula_.steps.push_back(step);
    return {formula_.names + static_cast<int>(formula_.steps.size()) - 1, {}};
  }
  Term Scaled(const Term& x, double factor) { return Step(Op::kScale, {x}, factor); }
  Term Shifted(const Term& x, double by) { return Step(Op::kShift, {x}, by); }

  Term Plus(const Term& x, const Term& y) {
    if (x.number && y.number) return {-1, *x.number + *y.number};
    if (x.number) return Shifted(y, *x.number);
    if (y.number) return Shifted(x, *y.number);
    return Step(Op::kAdd, {x, y});
  }
  Term Negative(const Term& x) { return x.number ? Term{-1, -*x.number} : Scaled(x, -1); }
  Term Minus(const Term& x, const Term& y) {
    if (!x.number && !y.number) return Step(Op::kSub, {x, y});
    return Plus(x, Negative(y));
  }
  Term Times(const Term& x, const Term& y) {
    if (x.number && y.number) return {-1, *x.number * *y.number};
    if (x.number) return Scaled(y, *x.number);
    if (y.number) return Scaled(x, *y.number);
    return Step(Op::kMul, {x, y});
  }

  Result<Term> Sum() {
    MW_ASSIGN_OR_RETURN(Term left, Product());
    for (;;) {
      if (Take('+')) {
        MW_ASSIGN_OR_RETURN(const Term right, Product());
        left = Plus(left, right);
      } else if (Take('-')) {
        MW_ASSIGN_OR_RETURN(const Term right, Product());
        left = Minus(left, right);
      } else {
        return left;
      }
    }
  }

  Result<Term> Product() {
    MW_ASSIGN_OR_RETURN(Term left, Factor());
    for (;;) {
      if (Take('*')) {
        MW_ASSIGN_OR_RETURN(const Term right, Factor());
        left = Times(left, right);
      } else if (Take('/')) {
        MW_ASSIGN_OR_RETURN(const Term right, Factor());
        if (left.number || right.number) return Fail(Error("numbers are not divided"));
        left = Step(Op::kDivide, {left, right});
      } else {
        return left;
      }
    }
  }

  // Formulas come from files, too: how deep they nest is bounded, as the stack is.
  Result<Term> Factor() {
    constexpr int kMostDepth = 200;
    if (depth_ >= kMostDepth) return Fail(Error(fmt::format("nests deeper than {}", kMostDepth)));
    ++depth_;
    Result<Term> factor = FactorInside();
    --depth_;
    return factor;
  }

  Result<Term> FactorInside() {
    if (Take('-')) {
      MW_ASSIGN_OR_RETURN(const Term term, Factor());
      return Negative(term);
    }
    if (Take('(')) {
      MW_ASSIGN_OR_RETURN(const Term term, Sum());
      if (!Take(')')) return Fail(Error("')' was expected"));
      return term;
    }
    Skip();
    if (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_]))) return Number();
    return Name();
  }

  Result<Term> Number() {
    double value = 0;
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) return Fail(Error("a number was expected"));
    at_ = static_cast<size_t>(end - text_.data());
    return Term{-1, value};
  }

  Result<Term> Name() {
    const size_t begin = at_;
    const auto in_name = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
    };
    while (at_ < text_.size() && in_name(text_[at_])) ++at_;
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (word.empty()) return Fail(Error("a value was expected"));
    if (Take('(')) return Call(word);
    const auto found = std::find(names_.begin(), names_.end(), word);
    if (found == names_.end()) return Fail(Error(fmt::format("'{}' is no value", word)));
    return Term{static_cast<int>(found - names_.begin()), {}};
  }

  Result<Term> Call(std::string_view word) {
    std::vector<Term> operands;
    do {
      MW_ASSIGN_OR_RETURN(const Term operand, Sum());
      if (operand.number) return Fail(Error("a number cannot be an operand"));
      operands.push_back(operand);
    } while (Take(','));
    if (!Take(')')) return Fail(Error("')' was expected"));
    if (operands.size() > 3) return Fail(Error("an op of a formula has at most 3 operands"));
    if (word == "self") return Step(self_, operands, 0, true);
    MW_ASSIGN_OR_RETURN(const Op op, ParseOp(word));
    return Step(op, operands);
  }

  const std::string_view text_;
  const std::span<const std::string_view> names_;
  const Op self_;
  size_t at_ = 0;
  int depth_ = 0;  // of factors in factors
  Formula formula_;
};

}  // namespace

Result<Formula> ParseFormula(std::string_view text, std::span<const std::string_view> names,
                             Op self) {
  return Parser(text, names, self).Run();
}

double ConstantOf(const FormulaStep& step, const Attrs& attrs) {
  if (!step.takes_attrs) return step.value;
  return step.op == Op::kShift ? attrs.Real("value") : attrs.Real("factor", 1);
}

}  // namespace meshwright::ir
