// Evaluates the expressions of a chat template.
//
// Thread rule: a run belongs to one thread.
#pragma once

#include <ctime>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/template_ast.h"
#include "tokenizer/template_builtins.h"

namespace meshwright::tokenizer {

// Names and their values. A loop, a macro and a block have one of their own; what is set in it is
// gone behind it.
struct Scope {
  explicit Scope(Scope* around) : parent(around) {}
  std::map<std::string, Value, std::less<>> names;
  Scope* parent = nullptr;
};

// What all parts of a run share.
struct RunState {
  RunState(const TemplateLimits& limits, const std::tm& when) : budget(limits), now(when) {}
  ~RunState();
  RunState(const RunState&) = delete;
  RunState& operator=(const RunState&) = delete;

  // Before each statement and expression. Errors: kResourceExhausted naming the limit.
  Status Enter(int at_line);

  Budget budget;
  const std::tm now;
  Scope global{nullptr};
  std::vector<NamespaceRef> namespaces;
  Values block_texts;  // of blocks whose filters are at work
  int depth = 0;
  int line = 1;  // of what was begun last, for errors
};

// Counts calls within calls while it lives.
class Deeper {
 public:
  explicit Deeper(RunState& run) : run_(run) { ++run_.depth; }
  ~Deeper() { --run_.depth; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  RunState& run_;
};

// Who runs the statements of a macro.
class MacroCaller {
 public:
  virtual ~MacroCaller() = default;
  virtual Result<Value> CallMacro(const Statement& macro, const CallArguments& arguments) = 0;
};

class Evaluator {
 public:
  Evaluator(RunState& run, MacroCaller& macros) : run_(run), macros_(macros) {}

  Result<Value> Evaluate(const Expression& of, Scope& scope);
  // The value of a name: of the scopes, of a function, else undefined.
  Value Find(std::string_view name, const Scope& scope) const;

 private:
  Status CostOfItem(const Value& of);
  Result<Value> Combine(const Expression& of, Scope& scope);
  Result<Value> Concat(const Expression& of, Value first, Scope& scope);
  Result<Values> EvaluateAll(const Expression& of, size_t from, Scope& scope);
  Result<Value> MakeDict(const Expression& of, Scope& scope);
  Result<Value> Slice(const Expression& of, Scope& scope);
  Result<CallArguments> ArgumentsOf(const Expression& of, Scope& scope);
  Result<Value> Pass(const Expression& of, Scope& scope);
  Result<Value> Call(const Expression& of, Scope& scope);
  Result<Value> Compare(const Expression& of, Scope& scope);

  RunState& run_;
  MacroCaller& macros_;
};

}  // namespace meshwright::tokenizer
