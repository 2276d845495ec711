// What a chat template can call: filters, tests, methods of values and functions.
//
// Each kind is a table; what is not in it is refused by name when the template is parsed. All of
// them answer as jinja2's immutable sandbox does, with `tojson` as transformers has it.
//
// Thread rule: pure functions of their arguments and the budget of a run.
#pragma once

#include <ctime>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tokenizer/template_value.h"

namespace meshwright::tokenizer {

struct TemplateLimits {
  int64_t steps = 10'000'000;              // evaluated, and items and texts made
  int64_t text_bytes = int64_t{16} << 20;  // of one text, the output among them
  int depth = 1500;                        // of calls within calls
};

// What a run may still do. Errors: kResourceExhausted naming the limit.
class Budget {
 public:
  explicit Budget(const TemplateLimits& limits) : limits_(limits) {}
  Status Spend(int64_t steps);
  // A text that was made: its bytes cost steps, too.
  Result<Value> Made(std::string text);
  Status CheckText(size_t bytes);
  const TemplateLimits& limits() const { return limits_; }

 private:
  const TemplateLimits limits_;
  int64_t spent_ = 0;
};

struct CallArguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;

  // By place or name; null where it is not given.
  const Value* Get(size_t place, std::string_view name) const;
  // Errors: too many, or a name that is none of these.
  Status Check(std::string_view what, std::initializer_list<std::string_view> names) const;
};

struct TemplateFilter {
  std::string_view name;
  Result<Value> (*apply)(const Value& of, const CallArguments& arguments, Budget& budget);
};
struct TemplateTest {
  std::string_view name;
  Result<bool> (*apply)(const Value& of, const CallArguments& arguments);
};
// What functions know of the run.
struct FunctionContext {
  Budget& budget;
  const std::tm& now;
  std::vector<NamespaceRef>& namespaces;  // of the run, which ends them
};
struct GlobalFunction {
  std::string_view name;
  Result<Value> (*call)(const CallArguments& arguments, FunctionContext context);
};

// Null where there is none.
const TemplateFilter* FindFilter(std::string_view name);
const TemplateTest* FindTest(std::string_view name);
const GlobalFunction* FindFunction(std::string_view name);

// value.name: a method, else a member. value[key]: an item. Undefined where there is none.
// Errors: kInvalidArgument: of what is undefined itself, and of what has no items.
Result<Value> MemberOf(const Value& value, std::string_view name);
Result<Value> ItemOf(const Value& value, const Value& key);
bool HasMethod(const Value& value, std::string_view name);
Result<Value> CallMethod(const Method& method, const CallArguments& arguments, Budget& budget);

// Whether `item` is in a list, a dictionary's keys, a text.
Result<bool> IsIn(const Value& item, const Value& container);

// The error of whatever is done with what is undefined.
Status UndefinedError(const Value& value);

}  // namespace meshwright::tokenizer
