#include "tokenizer/template_arithmetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tokenizer/template_text.h"

namespace meshwright::tokenizer {
namespace {

Status TooLarge() { return InvalidArgument("a number is beyond 64 bits"); }

Result<Value> Whole(std::string_view op, int64_t a, int64_t b) {
  int64_t made = 0;
  bool over = false;
  if (op == "+") {
    over = __builtin_add_overflow(a, b, &made);
  } else if (op == "-") {
    over = __builtin_sub_overflow(a, b, &made);
  } else if (op == "*") {
    over = __builtin_mul_overflow(a, b, &made);
  } else if (op == "**") {
    made = 1;
    for (int64_t i = 0; i < b && !over; ++i) {
      if ((a == 0 || a == 1) && i > 0) break;
      if (a == -1 && i > 1) {
        made = b % 2 == 0 ? 1 : -1;
        break;
      }
      over = __builtin_mul_overflow(made, a, &made);
    }
  } else if (b == -1) {  // -2^63 has no opposite
    if (op == "%") return Value::Of(int64_t{0});
    over = __builtin_sub_overflow(int64_t{0}, a, &made);
  } else {
    const bool uneven = a % b != 0 && (a % b < 0) != (b < 0);  // rounds down, not to 0
    made = op == "//" ? a / b - (uneven ? 1 : 0) : a % b + (uneven ? b : 0);
  }
  if (over) return Fail(TooLarge());
  return Value::Of(made);
}

Result<Value> Real(std::string_view op, double a, double b) {
  if (op == "+") return Value::Of(a + b);
  if (op == "-") return Value::Of(a - b);
  if (op == "*") return Value::Of(a * b);
  if (op == "/") return Value::Of(a / b);
  if (op == "**") return Value::Of(std::pow(a, b));
  if (op == "//") return Value::Of(std::floor(a / b));
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return Value::Of(rest);
}

Result<Value> Numbers(std::string_view op, const Value& a, const Value& b) {
  const bool divides = op == "/" || op == "//" || op == "%";
  if (divides && b.real() == 0) return Fail(InvalidArgument("a division by zero"));
  const bool real = a.As<double>() != nullptr || b.As<double>() != nullptr || op == "/";
  if (!real) {
    MW_ASSIGN_OR_RETURN(const int64_t left, a.ToInt("an operand"));
    MW_ASSIGN_OR_RETURN(const int64_t right, b.ToInt("an operand"));
    if (op != "**" || right >= 0) return Whole(op, left, right);
  }
  return Real(op, a.real(), b.real());
}

Result<Value> Repeated(const Value& of, int64_t times, Budget& budget) {
  const auto count = static_cast<size_t>(std::clamp<int64_t>(times, 0, int64_t{1} << 32));
  if (of.IsText()) {
    MW_TRY(budget.CheckText(of.text().empty() ? 0 : of.text().size() * count));
    std::string text;
    for (size_t i = 0; i < count && !of.text().empty(); ++i) text += of.text();
    return Value::Of(std::move(text));
  }
  Values items;
  if (!of.items().empty()) {
    MW_TRY(budget.Spend(static_cast<int64_t>(of.items().size() * count)));
    for (size_t i = 0; i < count; ++i) {
      items.insert(items.end(), of.items().begin(), of.items().end());
    }
  }
  return Value::List(std::move(items), (*of.As<ListRef>())->tuple);
}

Result<Value> Joined(const Value& a, const Value& b, Budget& budget) {
  MW_TRY(budget.Spend(static_cast<int64_t>(a.items().size() + b.items().size())));
  Values items = a.items();
  items.insert(items.end(), b.items().begin(), b.items().end());
  return Value::List(std::move(items), (*a.As<ListRef>())->tuple);
}

// The places that a slice takes of `count`, as Python counts them.
Result<std::vector<size_t>> PlacesOf(int64_t count, const Value* from, const Value* to,
                                     const Value* step) {
  const auto read = [](const Value* value, int64_t absent) -> Result<int64_t> {
    if (value == nullptr || value->IsNone()) return absent;
    if (value->IsUndefined()) return Fail(UndefinedError(*value));
    return value->ToInt("a part of a slice");
  };
  MW_ASSIGN_OR_RETURN(const int64_t by, read(step, 1));
  if (by == 0) return Fail(InvalidArgument("the step of a slice is 0"));
  const int64_t low = by > 0 ? 0 : -1;
  const int64_t high = by > 0 ? count : count - 1;
  const auto place = [&](int64_t value) {
    return std::clamp(value < 0 ? std::max(value, -count - 1) + count : value, low, high);
  };
  MW_ASSIGN_OR_RETURN(const int64_t said_begin, read(from, INT64_MAX));
  MW_ASSIGN_OR_RETURN(const int64_t said_end, read(to, INT64_MAX));
  const bool has_begin = from != nullptr && !from->IsNone();
  const bool has_end = to != nullptr && !to->IsNone();
  const int64_t begin = has_begin ? place(said_begin) : by > 0 ? low : high;
  const int64_t end = has_end ? place(said_end) : by > 0 ? high : low;
  std::vector<size_t> places;
  for (int64_t at = begin; by > 0 ? at < end : at > end;) {
    places.push_back(static_cast<size_t>(at));
    if (__builtin_add_overflow(at, by, &at)) break;
  }
  return places;
}

}  // namespace

Result<Value> Arithmetic(std::string_view op, const Value& a, const Value& b, Budget& budget) {
  if (a.IsUndefined()) return Fail(UndefinedError(a));
  if (b.IsUndefined()) return Fail(UndefinedError(b));
  if (a.IsNumber() && b.IsNumber()) return Numbers(op, a, b);
  if (op == "+" && a.IsText() && b.IsText()) {
    MW_TRY(budget.CheckText(a.text().size() + b.text().size()));
    return Value::Of(a.text() + b.text());
  }
  if (op == "+" && a.IsList() && b.IsList() && a.TypeName() == b.TypeName()) {
    return Joined(a, b, budget);
  }
  const bool left = (a.IsText() || a.IsList()) && b.IsNumber() && !b.As<double>();
  const bool right = (b.IsText() || b.IsList()) && a.IsNumber() && !a.As<double>();
  if (op == "*" && (left || right)) {
    MW_ASSIGN_OR_RETURN(const int64_t times, (left ? b : a).ToInt("a factor"));
    return Repeated(left ? a : b, times, budget);
  }
  if (op == "%" && a.IsText()) {
    return Fail(Unimplemented("'%' behind a text (it would format it) is not executed"));
  }
  return Fail(InvalidArgument(fmt::format("there is no {} {} {}", a.TypeName(), op, b.TypeName())));
}

Result<Value> Negative(const Value& value) {
  if (value.IsUndefined()) return Fail(UndefinedError(value));
  if (!value.IsNumber()) return Fail(InvalidArgument(fmt::format("- of a {}", value.TypeName())));
  if (value.As<double>()) return Value::Of(-value.real());
  MW_ASSIGN_OR_RETURN(const int64_t whole, value.ToInt("a number"));
  if (whole == INT64_MIN) return Fail(TooLarge());
  return Value::Of(-whole);
}

Result<Value> SliceOf(const Value& value, const Value* from, const Value* to, const Value* step,
                      Budget& budget) {
  if (value.IsUndefined()) return Fail(UndefinedError(value));
  if (!value.IsText() && !value.IsList()) {
    return Fail(InvalidArgument(fmt::format("a {} cannot be sliced", value.TypeName())));
  }
  MW_ASSIGN_OR_RETURN(const Values all, ItemsOf(value));
  MW_ASSIGN_OR_RETURN(const std::vector<size_t> places,
                      PlacesOf(static_cast<int64_t>(all.size()), from, to, step));
  MW_TRY(budget.Spend(static_cast<int64_t>(all.size() + places.size()) / 8));
  if (value.IsText()) {
    std::string text;
    for (const size_t place : places) text += all[place].text();
    return Value::Of(std::move(text));
  }
  Values items;
  for (const size_t place : places) items.push_back(all[place]);
  return Value::List(std::move(items), (*value.As<ListRef>())->tuple);
}

}  // namespace meshwright::tokenizer
