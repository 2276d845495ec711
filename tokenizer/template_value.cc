#include "tokenizer/template_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tokenizer/template_text.h"

namespace meshwright::tokenizer {
namespace {

Status TooDeep() {
  return ResourceExhausted(
      fmt::format("lists and dictionaries are nested deeper than {}", Value::kMaxDepth));
}

// The names of the kinds in their order in the variant.
constexpr const char* kTypeNames[] = {"Undefined",   "NoneType", "bool",  "int",       "float",
                                      "str",         "list",     "dict",  "Namespace", "generator",
                                      "LoopContext", "method",   "Macro", "function"};

Result<std::string> JoinedRepr(const Values& items) {
  std::string out;
  for (const Value& item : items) {
    if (!out.empty()) out += ", ";
    MW_ASSIGN_OR_RETURN(const std::string one, ToRepr(item));
    out += one;
  }
  return out;
}

Result<std::string> DictRepr(const Members& members) {
  std::string out = "{";
  for (const auto& [key, value] : members) {
    if (out.size() > 1) out += ", ";
    MW_ASSIGN_OR_RETURN(const std::string left, ToRepr(key));
    MW_ASSIGN_OR_RETURN(const std::string right, ToRepr(value));
    out += left + ": " + right;
  }
  return out + "}";
}

}  // namespace

Value Value::Missing(std::string_view name) {
  return OfRef(Undefined{std::make_shared<const std::string>(name)});
}

Result<Value> Value::List(Values items, bool tuple) {
  ListBox box;
  for (const Value& item : items) box.depth = std::max(box.depth, item.depth() + 1);
  if (box.depth > kMaxDepth) return Fail(TooDeep());
  box.items = std::move(items);
  box.tuple = tuple;
  return OfRef(ListRef(std::make_shared<const ListBox>(std::move(box))));
}

Result<Value> Value::Dict(Members members) {
  DictBox box;
  for (auto& [key, value] : members) {
    if (key.IsDict() || (key.IsList() && !(*key.As<ListRef>())->tuple)) {
      return Fail(InvalidArgument(fmt::format("a {} is no key of a dict", key.TypeName())));
    }
    box.depth = std::max({box.depth, value.depth() + 1, key.depth() + 1});
    // The last one of equal keys counts, at the place of the first.
    bool known = false;
    for (auto& [other, kept] : box.members) {
      if (!Equal(other, key)) continue;
      kept = value;
      known = true;
    }
    if (!known) box.members.emplace_back(key, value);
  }
  if (box.depth > kMaxDepth) return Fail(TooDeep());
  return OfRef(DictRef(std::make_shared<const DictBox>(std::move(box))));
}

Value Value::Generated(Values items) {
  return OfRef(GeneratorRef(std::make_shared<Generator>(Generator{std::move(items), false})));
}

bool ValueKind::IsNumber() const { return As<int64_t>() || As<bool>() || As<double>(); }

Result<int64_t> Value::ToInt(std::string_view what) const {
  if (const int64_t* const whole = As<int64_t>()) return *whole;
  if (const bool* const truth = As<bool>()) return *truth ? 1 : 0;
  return Fail(InvalidArgument(fmt::format("{} is a {}, not an int", what, TypeName())));
}

double Value::real() const {
  if (const double* const number = As<double>()) return *number;
  if (const int64_t* const whole = As<int64_t>()) return static_cast<double>(*whole);
  return *As<bool>() ? 1 : 0;
}

bool Value::Truth() const {
  if (IsUndefined() || IsNone()) return false;
  if (IsNumber()) return real() != 0;
  if (IsText()) return !text().empty();
  if (IsList()) return !items().empty();
  if (IsDict()) return !members().empty();
  return true;
}

int Value::depth() const {
  if (const ListRef* const list = As<ListRef>()) return (*list)->depth;
  if (const DictRef* const dict = As<DictRef>()) return (*dict)->depth;
  if (const GeneratorRef* const made = As<GeneratorRef>()) {
    int deepest = 0;
    for (const Value& item : (*made)->items) deepest = std::max(deepest, item.depth());
    return deepest + 1;
  }
  // The parts of these are values that were there before.
  return As<MethodRef>() != nullptr ? (*As<MethodRef>())->of->depth() + 1 : 0;
}

std::string ValueKind::TypeName() const {
  if (IsList() && (*As<ListRef>())->tuple) return "tuple";
  return kTypeNames[data_.index()];
}

std::string RealText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

Result<std::string> ToText(const Value& value) {
  if (value.IsText()) return value.text();
  if (value.IsUndefined()) return std::string();
  return ToRepr(value);
}

Result<std::string> ToRepr(const Value& value) {
  if (value.IsUndefined()) return std::string("Undefined");
  if (value.IsNone()) return std::string("None");
  if (const bool* const truth = value.As<bool>()) return std::string(*truth ? "True" : "False");
  if (const int64_t* const whole = value.integer()) return fmt::format("{}", *whole);
  if (const double* const number = value.As<double>()) return RealText(*number);
  if (value.IsText()) return TextRepr(value.text());
  if (value.IsList()) {
    const bool tuple = (*value.As<ListRef>())->tuple;
    MW_ASSIGN_OR_RETURN(std::string out, JoinedRepr(value.items()));
    if (tuple && value.items().size() == 1) out += ",";
    return tuple ? "(" + out + ")" : "[" + out + "]";
  }
  if (value.IsDict()) return DictRepr(value.members());
  return Fail(InvalidArgument(fmt::format("a {} has no text", value.TypeName())));
}

bool Equal(const Value& a, const Value& b) {
  if (a.IsNumber() && b.IsNumber()) {
    if (a.integer() && b.integer()) return *a.integer() == *b.integer();
    return a.real() == b.real();
  }
  if (a.IsText() && b.IsText()) return a.text() == b.text();
  if (a.IsUndefined() || a.IsNone()) {
    return (a.IsUndefined() && b.IsUndefined()) || (a.IsNone() && b.IsNone());
  }
  if (a.IsList() && b.IsList()) {
    return (*a.As<ListRef>())->tuple == (*b.As<ListRef>())->tuple &&
           std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(),
                      Equal);
  }
  if (a.IsDict() && b.IsDict()) {
    if (a.members().size() != b.members().size()) return false;
    return std::all_of(a.members().begin(), a.members().end(), [&](const auto& member) {
      const Value* const other = FindMember(b.members(), member.first);
      return other != nullptr && Equal(member.second, *other);
    });
  }
  if (a.As<NamespaceRef>() && b.As<NamespaceRef>()) {
    return *a.As<NamespaceRef>() == *b.As<NamespaceRef>();
  }
  return false;
}

Result<bool> Less(const Value& a, const Value& b) {
  if (a.IsNumber() && b.IsNumber()) {
    if (a.integer() && b.integer()) return *a.integer() < *b.integer();
    return a.real() < b.real();
  }
  if (a.IsText() && b.IsText()) return a.text() < b.text();
  if (a.IsList() && b.IsList()) {
    for (size_t i = 0; i < a.items().size() && i < b.items().size(); ++i) {
      if (!Equal(a.items()[i], b.items()[i])) return Less(a.items()[i], b.items()[i]);
    }
    return a.items().size() < b.items().size();
  }
  return Fail(
      InvalidArgument(fmt::format("a {} and a {} have no order", a.TypeName(), b.TypeName())));
}

const Value* FindMember(const Members& members, const Value& key) {
  for (const auto& [name, value] : members) {
    if (Equal(name, key)) return &value;
  }
  return nullptr;
}

const Value* FindMember(const Members& members, std::string_view key) {
  for (const auto& [name, value] : members) {
    if (name.IsText() && name.text() == key) return &value;
  }
  return nullptr;
}

Result<Values> ItemsOf(const Value& value) {
  if (value.IsList()) return value.items();
  Values items;
  if (value.IsUndefined()) return items;
  if (value.IsDict()) {
    for (const auto& member : value.members()) items.push_back(member.first);
    return items;
  }
  if (value.IsText()) {
    for (std::string& one : CharactersOf(value.text())) items.push_back(Value::Of(std::move(one)));
    return items;
  }
  if (const GeneratorRef* const made = value.As<GeneratorRef>()) {
    if ((*made)->used) return items;
    (*made)->used = true;
    return std::move((*made)->items);
  }
  return Fail(InvalidArgument(fmt::format("a {} is nothing to go through", value.TypeName())));
}

}  // namespace meshwright::tokenizer
