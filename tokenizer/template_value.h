// Values of a chat template: those of Python that a template can have.
//
// Lists and dictionaries never change once made, as in jinja2's immutable sandbox, so values share
// them. Only a namespace changes; its run owns it, since it may hold itself. Lists and dictionaries
// know how deep they are, which bounds whatever walks through them.
//
// Thread rule: one thread at a time per run; values of a template itself are only read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace meshwright::tokenizer {

class Value;
using Values = std::vector<Value>;
using Members = std::vector<std::pair<Value, Value>>;

struct Undefined {
  std::shared_ptr<const std::string> name;  // of what is not there, for errors; may be null
};
struct NoneValue {};
using TextRef = std::shared_ptr<const std::string>;
struct ListBox {
  Values items;
  int depth = 1;
  bool tuple = false;
};
using ListRef = std::shared_ptr<const ListBox>;
struct DictBox {
  Members members;
  int depth = 1;
};
using DictRef = std::shared_ptr<const DictBox>;
struct Namespace {
  Members members;
};
using NamespaceRef = std::shared_ptr<Namespace>;
// What a filter gives out one by one: once, and it is true even when there is nothing.
struct Generator {
  Values items;
  bool used = false;
};
using GeneratorRef = std::shared_ptr<Generator>;
// The variable `loop`.
struct LoopState {
  std::shared_ptr<const Values> items;
  size_t at = 0;
  int depth = 1;
};
using LoopRef = std::shared_ptr<const LoopState>;
// A method of a value: "split" of a text.
struct Method {
  std::shared_ptr<const Value> of;
  std::string name;
};
using MethodRef = std::shared_ptr<const Method>;
struct Statement;
using MacroRef = const Statement*;
struct GlobalFunction;
using FunctionPointer = const GlobalFunction*;

// What a value is.
class ValueKind {
 public:
  template <typename T>
  const T* As() const {
    return std::get_if<T>(&data_);
  }
  bool IsUndefined() const { return As<Undefined>() != nullptr; }
  bool IsNone() const { return As<NoneValue>() != nullptr; }
  bool IsText() const { return As<TextRef>() != nullptr; }
  bool IsList() const { return As<ListRef>() != nullptr; }
  bool IsDict() const { return As<DictRef>() != nullptr; }
  // An int, a float or, as in Python, a bool.
  bool IsNumber() const;
  // As Python's type() names it: "str".
  std::string TypeName() const;

 protected:
  using Data =
      std::variant<Undefined, NoneValue, bool, int64_t, double, TextRef, ListRef, DictRef,
                   NamespaceRef, GeneratorRef, LoopRef, MethodRef, MacroRef, FunctionPointer>;
  ValueKind() = default;
  explicit ValueKind(Data data) : data_(std::move(data)) {}

 private:
  Data data_;
};

class Value : public ValueKind {
 public:
  static constexpr int kMaxDepth = 100;

  Value() = default;
  static Value None() { return Value(Data(NoneValue())); }
  static Value Of(bool value) { return Value(Data(value)); }
  static Value Of(int64_t value) { return Value(Data(value)); }
  static Value Of(double value) { return Value(Data(value)); }
  static Value Of(std::string text) {
    return Value(Data(std::make_shared<const std::string>(std::move(text))));
  }
  static Value Missing(std::string_view name);
  // Errors: kResourceExhausted: deeper than kMaxDepth.
  static Result<Value> List(Values items, bool tuple = false);
  static Result<Value> Dict(Members members);
  static Value Generated(Values items);
  template <typename Ref>
  static Value OfRef(Ref ref) {
    return Value(Data(std::move(ref)));
  }

  // REQUIRES: IsText(), IsList(), IsDict().
  const std::string& text() const { return **As<TextRef>(); }
  const Values& items() const { return (*As<ListRef>())->items; }
  const Members& members() const { return (*As<DictRef>())->members; }
  // An int; null for all others.
  const int64_t* integer() const { return As<int64_t>(); }
  // An int or a bool. Errors: kInvalidArgument, where `what` is neither.
  Result<int64_t> ToInt(std::string_view what) const;
  double real() const;  // REQUIRES: IsNumber()

  bool Truth() const;
  int depth() const;

 private:
  explicit Value(Data data) : ValueKind(std::move(data)) {}
};

// As Python prints it, and as it writes it within a list. Errors: what has no such text.
Result<std::string> ToText(const Value& value);
Result<std::string> ToRepr(const Value& value);
std::string RealText(double value);

bool Equal(const Value& a, const Value& b);
// Whether a < b. Errors: kInvalidArgument where Python does not compare the two.
Result<bool> Less(const Value& a, const Value& b);

// The value of a key; null where there is none.
const Value* FindMember(const Members& members, const Value& key);
const Value* FindMember(const Members& members, std::string_view key);

// What a loop over `value` goes through: items, keys, characters. A generator is used up by it.
// Errors: kInvalidArgument: it is nothing to go through.
Result<Values> ItemsOf(const Value& value);

}  // namespace meshwright::tokenizer
