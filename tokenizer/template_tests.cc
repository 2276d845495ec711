// Tests: what stands behind "is".
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tokenizer/template_builtins.h"
#include "tokenizer/template_text.h"

namespace meshwright::tokenizer {
namespace {

using Arguments = CallArguments;

// Tests of the value alone.
template <bool (*kIs)(const Value&)>
Result<bool> Plain(const Value& of, const Arguments& arguments) {
  MW_TRY(arguments.Check("a test without arguments", {}));
  return kIs(of);
}

bool IsDefined(const Value& v) { return !v.IsUndefined(); }
bool IsUndefined(const Value& v) { return v.IsUndefined(); }
bool IsNone(const Value& v) { return v.IsNone(); }
bool IsString(const Value& v) { return v.IsText(); }
bool IsMapping(const Value& v) { return v.IsDict(); }
bool IsSequence(const Value& v) {
  return v.IsText() || v.IsList() || v.IsDict() || v.IsUndefined();
}
bool IsIterable(const Value& v) { return IsSequence(v) || v.As<GeneratorRef>() != nullptr; }
bool IsBoolean(const Value& v) { return v.As<bool>() != nullptr; }
bool IsTrue(const Value& v) { return v.As<bool>() != nullptr && *v.As<bool>(); }
bool IsFalse(const Value& v) { return v.As<bool>() != nullptr && !*v.As<bool>(); }
bool IsNumber(const Value& v) { return v.IsNumber(); }
bool IsInteger(const Value& v) { return v.integer() != nullptr; }
bool IsFloat(const Value& v) { return v.As<double>() != nullptr; }
bool IsCallable(const Value& v) {
  return v.As<MethodRef>() != nullptr || v.As<MacroRef>() != nullptr ||
         v.As<FunctionPointer>() != nullptr;
}

template <std::string (*kMap)(std::string_view)>
Result<bool> IsCase(const Value& of, const Arguments& arguments) {
  MW_TRY(arguments.Check("a test without arguments", {}));
  MW_ASSIGN_OR_RETURN(const std::string text, ToText(of));
  return kMap(text) == text && LowerText(text) != UpperText(text);
}

Result<const Value*> Other(const Arguments& arguments) {
  MW_TRY(arguments.Check("a test", {"other"}));
  const Value* const other = arguments.Get(0, "other");
  if (other == nullptr) return Fail(InvalidArgument("a test lacks what it compares with"));
  return other;
}

template <int64_t kRest>
Result<bool> Parity(const Value& of, const Arguments& arguments) {
  MW_TRY(arguments.Check("a test without arguments", {}));
  MW_ASSIGN_OR_RETURN(const int64_t whole, of.ToInt("what is tested"));
  return (whole % 2 + 2) % 2 == kRest;
}

Result<bool> DivisibleBy(const Value& of, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const Value* const by, Other(arguments));
  MW_ASSIGN_OR_RETURN(const int64_t whole, of.ToInt("what is tested"));
  MW_ASSIGN_OR_RETURN(const int64_t divisor, by->ToInt("the divisor"));
  if (divisor == 0) return Fail(InvalidArgument("divisibleby 0"));
  return divisor == -1 || whole % divisor == 0;
}

template <bool kWanted>
Result<bool> Equals(const Value& of, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const Value* const other, Other(arguments));
  return Equal(of, *other) == kWanted;
}

Result<bool> LessThan(const Value& of, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const Value* const other, Other(arguments));
  return Less(of, *other);
}
Result<bool> GreaterThan(const Value& of, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const Value* const other, Other(arguments));
  return Less(*other, of);
}
Result<bool> AtMost(const Value& of, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const bool greater, GreaterThan(of, arguments));
  return !greater;
}
Result<bool> AtLeast(const Value& of, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const bool less, LessThan(of, arguments));
  return !less;
}

Result<bool> IsInTest(const Value& of, const Arguments& arguments) {
  MW_ASSIGN_OR_RETURN(const Value* const other, Other(arguments));
  return IsIn(of, *other);
}

constexpr auto kTests = std::to_array<TemplateTest>({{"defined", Plain<IsDefined>},
                                                     {"undefined", Plain<IsUndefined>},
                                                     {"none", Plain<IsNone>},
                                                     {"string", Plain<IsString>},
                                                     {"mapping", Plain<IsMapping>},
                                                     {"sequence", Plain<IsSequence>},
                                                     {"iterable", Plain<IsIterable>},
                                                     {"boolean", Plain<IsBoolean>},
                                                     {"true", Plain<IsTrue>},
                                                     {"false", Plain<IsFalse>},
                                                     {"number", Plain<IsNumber>},
                                                     {"integer", Plain<IsInteger>},
                                                     {"float", Plain<IsFloat>},
                                                     {"callable", Plain<IsCallable>},
                                                     {"lower", IsCase<LowerText>},
                                                     {"upper", IsCase<UpperText>},
                                                     {"odd", Parity<1>},
                                                     {"even", Parity<0>},
                                                     {"divisibleby", DivisibleBy},
                                                     {"equalto", Equals<true>},
                                                     {"eq", Equals<true>},
                                                     {"ne", Equals<false>},
                                                     {"lt", LessThan},
                                                     {"lessthan", LessThan},
                                                     {"gt", GreaterThan},
                                                     {"greaterthan", GreaterThan},
                                                     {"le", AtMost},
                                                     {"ge", AtLeast},
                                                     {"in", IsInTest}});

}  // namespace

const TemplateTest* FindTest(std::string_view name) {
  // Signs are names, too, where a filter is given one: selectattr("a", "==", 1).
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kSigns = {
      {{"==", "eq"}, {"!=", "ne"}, {"<", "lt"}, {">", "gt"}, {"<=", "le"}, {">=", "ge"}}};
  for (const auto& [sign, word] : kSigns) {
    if (sign == name) name = word;
  }
  for (const TemplateTest& row : kTests) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

}  // namespace meshwright::tokenizer
