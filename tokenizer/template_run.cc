#include "tokenizer/template_run.h"

#include <fmt/format.h>

#include <utility>

#include "tokenizer/template_evaluator.h"

namespace meshwright::tokenizer {
namespace {

enum class Flow : uint8_t { kNext, kBreak, kContinue };

// Where output goes: into a text of its own while the object lives.
class Capture {
 public:
  explicit Capture(std::string*& out) : out_(out), before_(out) { out_ = &text_; }
  ~Capture() { out_ = before_; }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  std::string Take() { return std::move(text_); }

 private:
  std::string*& out_;
  std::string* const before_;
  std::string text_;
};

class Run final : public MacroCaller {
 public:
  Run(const TemplateInputs& inputs, const TemplateLimits& limits) : run_(limits, inputs.now) {
    for (const auto& [name, value] : inputs.variables) {
      run_.global.names.insert_or_assign(name, value);
    }
  }

  Result<RenderedTemplate> All(const Body& body) {
    const Result<Flow> done = ExecuteAll(body, run_.global);
    if (!done.has_value()) return Fail(done.error().WithContext(fmt::format("line {}", run_.line)));
    return std::move(rendered_);
  }

  // A macro sees the names of the template, not those of where it is called.
  Result<Value> CallMacro(const Statement& macro, const CallArguments& arguments) override {
    const Deeper deeper(run_);
    if (arguments.positional.size() > macro.targets.size()) {
      return Fail(InvalidArgument(fmt::format("macro '{}' takes {} arguments, not {}", macro.text,
                                              macro.targets.size(), arguments.positional.size())));
    }
    Scope inner(&run_.global);
    const size_t required = macro.targets.size() - macro.defaults.size();
    size_t used = 0;
    for (size_t i = 0; i < macro.targets.size(); ++i) {
      const std::string& name = macro.targets[i].name;
      const Value* const given = arguments.Get(i, name);
      Value value = Value::Missing(name);
      if (given != nullptr) {
        value = *given;
        ++used;
      } else if (i >= required) {
        MW_ASSIGN_OR_RETURN(value, evaluator_.Evaluate(*macro.defaults[i - required], inner));
      }
      inner.names.insert_or_assign(name, std::move(value));
    }
    if (used != arguments.positional.size() + arguments.named.size()) {
      return Fail(InvalidArgument(fmt::format(
          "macro '{}' has no parameter of a name that is given, or has it twice", macro.text)));
    }
    Capture capture(out_);
    MW_TRY(ExecuteAll(macro.body, inner));
    return Value::Of(capture.Take());
  }

 private:
  Status Write(std::string_view text) {
    if (static_cast<int64_t>(out_->size() + text.size()) > run_.budget.limits().text_bytes) {
      return run_.budget.CheckText(out_->size() + text.size());
    }
    MW_TRY(run_.budget.CheckText(text.size()));
    *out_ += text;
    return OkStatus();
  }

  Result<Flow> ExecuteAll(const Body& body, Scope& scope) {
    for (const StatementRef& statement : body) {
      MW_ASSIGN_OR_RETURN(const Flow flow, Execute(*statement, scope));
      if (flow != Flow::kNext) return flow;
    }
    return Flow::kNext;
  }

  Result<Flow> Execute(const Statement& of, Scope& scope) {
    const Deeper deeper(run_);
    MW_TRY(run_.Enter(of.line));
    switch (of.kind) {
      case StatementKind::kData:
        MW_TRY(Write(of.text));
        return Flow::kNext;
      case StatementKind::kOutput: {
        MW_ASSIGN_OR_RETURN(const Value value, evaluator_.Evaluate(*of.expression, scope));
        MW_ASSIGN_OR_RETURN(const std::string text, ToText(value));
        MW_TRY(Write(text));
        return Flow::kNext;
      }
      case StatementKind::kIf: {
        MW_ASSIGN_OR_RETURN(const Value value, evaluator_.Evaluate(*of.expression, scope));
        return ExecuteAll(value.Truth() ? of.body : of.otherwise, scope);
      }
      case StatementKind::kFor:
        return Loop(of, scope);
      case StatementKind::kMacro:
        scope.names.insert_or_assign(of.text, Value::OfRef(MacroRef(&of)));
        return Flow::kNext;
      case StatementKind::kSet: {
        MW_ASSIGN_OR_RETURN(const Value value, evaluator_.Evaluate(*of.expression, scope));
        MW_TRY(Assign(of, value, scope));
        return Flow::kNext;
      }
      case StatementKind::kSetBlock: {
        MW_ASSIGN_OR_RETURN(const Value value, Block(of, scope));
        MW_TRY(Assign(of, value, scope));
        return Flow::kNext;
      }
      case StatementKind::kFilter: {
        MW_ASSIGN_OR_RETURN(const Value value, Block(of, scope));
        MW_ASSIGN_OR_RETURN(const std::string text, ToText(value));
        MW_TRY(Write(text));
        return Flow::kNext;
      }
      case StatementKind::kGeneration:
        return Generation(of, scope);
      case StatementKind::kBreak:
        return Flow::kBreak;
      case StatementKind::kContinue:
        return Flow::kContinue;
    }
    return Flow::kNext;
  }

  Result<Flow> Generation(const Statement& of, Scope& scope) {
    Scope inner(&scope);
    const bool shown = out_ == &rendered_.text;
    const size_t begin = out_->size();
    MW_ASSIGN_OR_RETURN(const Flow flow, ExecuteAll(of.body, inner));
    if (shown) rendered_.generated.push_back({begin, out_->size()});
    return flow;
  }

  // The text of a body, through filters.
  Result<Value> Block(const Statement& of, Scope& scope) {
    Scope inner(&scope);
    Capture capture(out_);
    MW_TRY(ExecuteAll(of.body, inner));
    Value text = Value::Of(capture.Take());
    if (of.expression == nullptr) return text;
    run_.block_texts.push_back(std::move(text));
    Result<Value> filtered = evaluator_.Evaluate(*of.expression, scope);
    run_.block_texts.pop_back();
    return filtered;
  }

  Result<Flow> Loop(const Statement& of, Scope& scope) {
    MW_ASSIGN_OR_RETURN(const Value through, evaluator_.Evaluate(*of.expression, scope));
    MW_ASSIGN_OR_RETURN(Values items, ItemsOf(through));
    MW_TRY(run_.budget.Spend(static_cast<int64_t>(items.size())));
    if (of.condition != nullptr) {
      Values kept;
      for (Value& item : items) {
        Scope inner(&scope);
        MW_TRY(Assign(of, item, inner));
        MW_ASSIGN_OR_RETURN(const Value good, evaluator_.Evaluate(*of.condition, inner));
        if (good.Truth()) kept.push_back(std::move(item));
      }
      items = std::move(kept);
    }
    if (items.empty()) {
      Scope inner(&scope);
      return ExecuteAll(of.otherwise, inner);
    }
    const auto shared = std::make_shared<const Values>(std::move(items));
    for (size_t i = 0; i < shared->size(); ++i) {
      Scope inner(&scope);
      inner.names.emplace(
          "loop", Value::OfRef(LoopRef(std::make_shared<const LoopState>(LoopState{shared, i}))));
      MW_TRY(Assign(of, (*shared)[i], inner));
      MW_ASSIGN_OR_RETURN(const Flow flow, ExecuteAll(of.body, inner));
      if (flow == Flow::kBreak) break;
    }
    return Flow::kNext;
  }

  Status Assign(const Statement& of, const Value& value, Scope& scope) {
    if (!of.unpacks) return AssignOne(of.targets[0], value, scope);
    MW_ASSIGN_OR_RETURN(const Values items, ItemsOf(value));
    if (items.size() != of.targets.size()) {
      return InvalidArgument(
          fmt::format("{} values for {} names", items.size(), of.targets.size()));
    }
    for (size_t i = 0; i < items.size(); ++i) MW_TRY(AssignOne(of.targets[i], items[i], scope));
    return OkStatus();
  }

  Status AssignOne(const Target& target, const Value& value, Scope& scope) {
    if (target.member.empty()) {
      scope.names.insert_or_assign(target.name, value);
      return OkStatus();
    }
    const Value of = evaluator_.Find(target.name, scope);
    const NamespaceRef* const space = of.As<NamespaceRef>();
    if (space == nullptr) {
      return InvalidArgument(fmt::format("'{}' is a {}, and members of a namespace can be set only",
                                         target.name, of.TypeName()));
    }
    for (auto& [name, known] : (*space)->members) {
      if (!name.IsText() || name.text() != target.member) continue;
      known = value;
      return OkStatus();
    }
    (*space)->members.emplace_back(Value::Of(target.member), value);
    return OkStatus();
  }

  RunState run_;
  Evaluator evaluator_{run_, *this};
  RenderedTemplate rendered_;
  std::string* out_ = &rendered_.text;
};

}  // namespace

Result<RenderedTemplate> RunTemplate(const Body& body, const TemplateInputs& inputs,
                                     const TemplateLimits& limits) {
  Run run(inputs, limits);
  return run.All(body);
}

}  // namespace meshwright::tokenizer
