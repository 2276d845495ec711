#include "tokenizer/template_evaluator.h"

#include <fmt/format.h>

#include <utility>

#include "tokenizer/template_arithmetic.h"

namespace meshwright::tokenizer {

RunState::~RunState() {
  // A namespace may hold itself.
  for (const NamespaceRef& made : namespaces) made->members.clear();
}

Status RunState::Enter(int at_line) {
  line = at_line;
  MW_TRY(budget.Spend(1));
  if (depth <= budget.limits().depth) return OkStatus();
  return ResourceExhausted(
      fmt::format("calls and values are nested deeper than {}", budget.limits().depth));
}

namespace {

Status CostOfComparison(RunState& run, const Value& left, const Value& right) {
  size_t items = 0;
  if (right.IsText()) items += right.text().size() / 64;
  if (right.IsList()) items += right.items().size();
  if (left.IsList()) items += left.items().size();
  return run.budget.Spend(static_cast<int64_t>(items));
}

Result<bool> CompareTwo(RunState& run, std::string_view op, const Value& left, const Value& right) {
  MW_TRY(CostOfComparison(run, left, right));
  if (op == "==") return Equal(left, right);
  if (op == "!=") return !Equal(left, right);
  if (op == "in" || op == "not in") {
    MW_ASSIGN_OR_RETURN(const bool is, IsIn(left, right));
    return is == (op == "in");
  }
  if (left.IsUndefined()) return Fail(UndefinedError(left));
  if (right.IsUndefined()) return Fail(UndefinedError(right));
  const bool reversed = op == ">" || op == "<=";
  MW_ASSIGN_OR_RETURN(const bool less, reversed ? Less(right, left) : Less(left, right));
  return op == "<=" || op == ">=" ? !less : less;
}

}  // namespace

Value Evaluator::Find(std::string_view name, const Scope& scope) const {
  for (const Scope* at = &scope; at != nullptr; at = at->parent) {
    if (const auto found = at->names.find(name); found != at->names.end()) return found->second;
  }
  if (const GlobalFunction* const function = FindFunction(name)) {
    return Value::OfRef(FunctionPointer(function));
  }
  return Value::Missing(name);
}

Result<Value> Evaluator::Evaluate(const Expression& of, Scope& scope) {
  const Deeper deeper(run_);
  MW_TRY(run_.Enter(of.line));
  switch (of.kind) {
    case ExpressionKind::kConstant:
      return of.value;
    case ExpressionKind::kName:
      return Find(of.name, scope);
    case ExpressionKind::kList:
    case ExpressionKind::kTuple: {
      MW_ASSIGN_OR_RETURN(Values items, EvaluateAll(of, 0, scope));
      return Value::List(std::move(items), of.kind == ExpressionKind::kTuple);
    }
    case ExpressionKind::kDict:
      return MakeDict(of, scope);
    case ExpressionKind::kMember: {
      MW_ASSIGN_OR_RETURN(const Value value, Evaluate(*of.parts[0], scope));
      return MemberOf(value, of.name);
    }
    case ExpressionKind::kItem: {
      MW_ASSIGN_OR_RETURN(const Values parts, EvaluateAll(of, 0, scope));
      MW_TRY(CostOfItem(parts[0]));
      return ItemOf(parts[0], parts[1]);
    }
    case ExpressionKind::kSlice:
      return Slice(of, scope);
    case ExpressionKind::kCall:
      return Call(of, scope);
    case ExpressionKind::kFilter:
    case ExpressionKind::kTest:
      return Pass(of, scope);
    case ExpressionKind::kCompare:
      return Compare(of, scope);
    default:
      return Combine(of, scope);
  }
}

// A character of a text is found by counting.
Status Evaluator::CostOfItem(const Value& of) {
  return of.IsText() ? run_.budget.Spend(static_cast<int64_t>(of.text().size()) / 8) : OkStatus();
}

// Operators whose operands are evaluated one by one.
Result<Value> Evaluator::Combine(const Expression& of, Scope& scope) {
  MW_ASSIGN_OR_RETURN(Value first, Evaluate(*of.parts[0], scope));
  switch (of.kind) {
    case ExpressionKind::kNot:
      return Value::Of(!first.Truth());
    case ExpressionKind::kNegative:
      return Negative(first);
    case ExpressionKind::kPositive: {
      MW_ASSIGN_OR_RETURN(const Value negative, Negative(first));
      return Negative(negative);
    }
    case ExpressionKind::kAnd:
      return first.Truth() ? Evaluate(*of.parts[1], scope) : Result<Value>(std::move(first));
    case ExpressionKind::kOr:
      return first.Truth() ? Result<Value>(std::move(first)) : Evaluate(*of.parts[1], scope);
    case ExpressionKind::kConditional:
      if (first.Truth()) return Evaluate(*of.parts[1], scope);
      if (of.parts[2] != nullptr) return Evaluate(*of.parts[2], scope);
      return Value::Missing("the value of an if without else");
    case ExpressionKind::kBinary: {
      MW_ASSIGN_OR_RETURN(const Value second, Evaluate(*of.parts[1], scope));
      return Arithmetic(of.name, first, second, run_.budget);
    }
    default:
      return Concat(of, std::move(first), scope);
  }
}

Result<Value> Evaluator::Concat(const Expression& of, Value first, Scope& scope) {
  MW_ASSIGN_OR_RETURN(std::string text, ToText(first));
  for (size_t i = 1; i < of.parts.size(); ++i) {
    MW_ASSIGN_OR_RETURN(const Value value, Evaluate(*of.parts[i], scope));
    MW_ASSIGN_OR_RETURN(const std::string part, ToText(value));
    text += part;
    MW_TRY(run_.budget.CheckText(text.size()));
  }
  return Value::Of(std::move(text));
}

Result<Values> Evaluator::EvaluateAll(const Expression& of, size_t from, Scope& scope) {
  Values values;
  for (size_t i = from; i < of.parts.size(); ++i) {
    MW_ASSIGN_OR_RETURN(Value value, Evaluate(*of.parts[i], scope));
    values.push_back(std::move(value));
  }
  return values;
}

Result<Value> Evaluator::MakeDict(const Expression& of, Scope& scope) {
  Members members;
  for (size_t i = 0; i < of.parts.size(); i += 2) {
    MW_ASSIGN_OR_RETURN(Value key, Evaluate(*of.parts[i], scope));
    MW_ASSIGN_OR_RETURN(Value value, Evaluate(*of.parts[i + 1], scope));
    members.emplace_back(std::move(key), std::move(value));
  }
  return Value::Dict(std::move(members));
}

Result<Value> Evaluator::Slice(const Expression& of, Scope& scope) {
  MW_ASSIGN_OR_RETURN(const Value value, Evaluate(*of.parts[0], scope));
  Value parts[3];
  const Value* given[3] = {};
  for (size_t i = 0; i < 3; ++i) {
    if (of.parts[i + 1] == nullptr) continue;
    MW_ASSIGN_OR_RETURN(parts[i], Evaluate(*of.parts[i + 1], scope));
    given[i] = &parts[i];
  }
  MW_TRY(CostOfItem(value));
  return SliceOf(value, given[0], given[1], given[2], run_.budget);
}

Result<CallArguments> Evaluator::ArgumentsOf(const Expression& of, Scope& scope) {
  CallArguments arguments;
  MW_ASSIGN_OR_RETURN(arguments.positional, EvaluateAll(of, 1, scope));
  for (const auto& [name, expression] : of.named) {
    MW_ASSIGN_OR_RETURN(Value value, Evaluate(*expression, scope));
    arguments.named.emplace_back(name, std::move(value));
  }
  return arguments;
}

// Through a filter or a test.
Result<Value> Evaluator::Pass(const Expression& of, Scope& scope) {
  Value value;
  if (of.parts[0] != nullptr) {
    MW_ASSIGN_OR_RETURN(value, Evaluate(*of.parts[0], scope));
  } else {
    value = run_.block_texts.back();
  }
  MW_ASSIGN_OR_RETURN(const CallArguments arguments, ArgumentsOf(of, scope));
  run_.line = of.line;
  if (of.filter != nullptr) return of.filter->apply(value, arguments, run_.budget);
  MW_ASSIGN_OR_RETURN(const bool is, of.test->apply(value, arguments));
  return Value::Of(is);
}

Result<Value> Evaluator::Call(const Expression& of, Scope& scope) {
  MW_ASSIGN_OR_RETURN(const Value callee, Evaluate(*of.parts[0], scope));
  MW_ASSIGN_OR_RETURN(const CallArguments arguments, ArgumentsOf(of, scope));
  run_.line = of.line;
  if (const MethodRef* const method = callee.As<MethodRef>()) {
    return CallMethod(**method, arguments, run_.budget);
  }
  if (const FunctionPointer* const function = callee.As<FunctionPointer>()) {
    return (*function)->call(arguments, {run_.budget, run_.now, run_.namespaces});
  }
  if (const MacroRef* const macro = callee.As<MacroRef>())
    return macros_.CallMacro(**macro, arguments);
  if (callee.IsUndefined()) return Fail(UndefinedError(callee));
  return Fail(InvalidArgument(fmt::format("a {} cannot be called", callee.TypeName())));
}

Result<Value> Evaluator::Compare(const Expression& of, Scope& scope) {
  MW_ASSIGN_OR_RETURN(Value left, Evaluate(*of.parts[0], scope));
  for (size_t i = 0; i < of.operators.size(); ++i) {
    MW_ASSIGN_OR_RETURN(Value right, Evaluate(*of.parts[i + 1], scope));
    MW_ASSIGN_OR_RETURN(const bool holds, CompareTwo(run_, of.operators[i], left, right));
    if (!holds) return Value::Of(false);
    left = std::move(right);
  }
  return Value::Of(true);
}

}  // namespace meshwright::tokenizer
