// Functions, members and what a run may do.
#include "tokenizer/template_builtins.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tokenizer/template_text.h"

namespace meshwright::tokenizer {
namespace {

constexpr int64_t kBytesPerStep = 64;
constexpr int64_t kMaxRange = 100'000;  // of jinja2's sandbox

Result<Value> RaiseException(const CallArguments& arguments, FunctionContext) {
  const Value* const message = arguments.Get(0, "message");
  MW_ASSIGN_OR_RETURN(const std::string text,
                      message == nullptr ? std::string() : ToText(*message));
  return Fail(InvalidArgument("the template says: " + text));
}

Result<Value> StrftimeNow(const CallArguments& arguments, FunctionContext context) {
  MW_TRY(arguments.Check("strftime_now", {"format"}));
  const Value* const format = arguments.Get(0, "format");
  if (format == nullptr || !format->IsText()) {
    return Fail(InvalidArgument("strftime_now wants a format"));
  }
  if (format->text().empty()) return Value::Of(std::string());
  std::string text(format->text().size() * 8 + 256, '\0');
  text.resize(std::strftime(text.data(), text.size(), format->text().c_str(), &context.now));
  return context.budget.Made(std::move(text));
}

Result<Value> Range(const CallArguments& arguments, FunctionContext context) {
  if (!arguments.named.empty() || arguments.positional.empty() || arguments.positional.size() > 3) {
    return Fail(InvalidArgument("range takes one to three numbers"));
  }
  std::array<int64_t, 3> parts = {0, 0, 1};
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    MW_ASSIGN_OR_RETURN(parts[i], arguments.positional[i].ToInt("an argument of range"));
  }
  if (arguments.positional.size() == 1) std::swap(parts[0], parts[1]);
  const auto [begin, end, step] = parts;
  if (step == 0) return Fail(InvalidArgument("the step of range is 0"));
  Values items;
  for (int64_t at = begin; step > 0 ? at < end : at > end;) {
    if (static_cast<int64_t>(items.size()) == kMaxRange) {
      return Fail(ResourceExhausted(fmt::format("range has more than {} numbers", kMaxRange)));
    }
    items.push_back(Value::Of(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  MW_TRY(context.budget.Spend(static_cast<int64_t>(items.size())));
  return Value::List(std::move(items));
}

// Members of a dict or a namespace: of a dict that is given, and by name.
Result<Members> MembersOf(const CallArguments& arguments, std::string_view what) {
  Members members;
  if (arguments.positional.size() > 1 ||
      (arguments.positional.size() == 1 && !arguments.positional[0].IsDict())) {
    return Fail(InvalidArgument(fmt::format("{} takes a dict and names", what)));
  }
  if (!arguments.positional.empty()) members = arguments.positional[0].members();
  for (const auto& [name, value] : arguments.named) members.emplace_back(Value::Of(name), value);
  return members;
}

Result<Value> MakeNamespace(const CallArguments& arguments, FunctionContext context) {
  MW_ASSIGN_OR_RETURN(Members members, MembersOf(arguments, "namespace"));
  MW_TRY(context.budget.Spend(16));
  auto made = std::make_shared<Namespace>(Namespace{std::move(members)});
  context.namespaces.push_back(made);
  return Value::OfRef(NamespaceRef(std::move(made)));
}

Result<Value> MakeDict(const CallArguments& arguments, FunctionContext context) {
  MW_ASSIGN_OR_RETURN(Members members, MembersOf(arguments, "dict"));
  MW_TRY(context.budget.Spend(static_cast<int64_t>(members.size())));
  return Value::Dict(std::move(members));
}

constexpr std::array<GlobalFunction, 5> kFunctions = {{{"raise_exception", RaiseException},
                                                       {"strftime_now", StrftimeNow},
                                                       {"range", Range},
                                                       {"namespace", MakeNamespace},
                                                       {"dict", MakeDict}}};

Value LoopMember(const LoopState& loop, std::string_view name) {
  const Values& items = *loop.items;
  const auto at = static_cast<int64_t>(loop.at);
  const auto count = static_cast<int64_t>(items.size());
  if (name == "index") return Value::Of(at + 1);
  if (name == "index0") return Value::Of(at);
  if (name == "revindex") return Value::Of(count - at);
  if (name == "revindex0") return Value::Of(count - at - 1);
  if (name == "length") return Value::Of(count);
  if (name == "first") return Value::Of(at == 0);
  if (name == "last") return Value::Of(at + 1 == count);
  if (name == "depth") return Value::Of(int64_t{1});
  if (name == "depth0") return Value::Of(int64_t{0});
  if (name == "previtem" && at > 0) return items[loop.at - 1];
  if (name == "nextitem" && at + 1 < count) return items[loop.at + 1];
  return Value::Missing(fmt::format("loop.{}", name));
}

std::string MissingText(const Value& value, std::string_view name) {
  return fmt::format("{} object has no '{}'", value.TypeName(), name);
}

// A place counted from the end where it is negative; nothing outside.
std::optional<size_t> PlaceOf(int64_t index, size_t size) {
  const auto count = static_cast<int64_t>(size);
  if (index < 0) index += count;
  if (index < 0 || index >= count) return std::nullopt;
  return static_cast<size_t>(index);
}

}  // namespace

Status Budget::Spend(int64_t steps) {
  spent_ += steps;
  if (spent_ <= limits_.steps) return OkStatus();
  return ResourceExhausted(fmt::format("the template takes more than {} steps", limits_.steps));
}

Status Budget::CheckText(size_t bytes) {
  if (static_cast<int64_t>(bytes) > limits_.text_bytes) {
    return ResourceExhausted(
        fmt::format("the template makes a text of more than {} bytes", limits_.text_bytes));
  }
  return Spend(static_cast<int64_t>(bytes) / kBytesPerStep);
}

Result<Value> Budget::Made(std::string text) {
  MW_TRY(CheckText(text.size()));
  return Value::Of(std::move(text));
}

const Value* CallArguments::Get(size_t place, std::string_view name) const {
  if (place < positional.size()) return &positional[place];
  for (const auto& [known, value] : named) {
    if (known == name) return &value;
  }
  return nullptr;
}

Status CallArguments::Check(std::string_view what,
                            std::initializer_list<std::string_view> names) const {
  if (positional.size() > names.size()) {
    return InvalidArgument(
        fmt::format("{} takes {} arguments, not {}", what, names.size(), positional.size()));
  }
  for (const auto& [name, value] : named) {
    const auto* const found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      return InvalidArgument(fmt::format("{} has no argument '{}'", what, name));
    }
    if (static_cast<size_t>(found - names.begin()) < positional.size()) {
      return InvalidArgument(fmt::format("{} has two values for '{}'", what, name));
    }
  }
  return OkStatus();
}

const GlobalFunction* FindFunction(std::string_view name) {
  for (const GlobalFunction& row : kFunctions) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

Status UndefinedError(const Value& value) {
  const auto& name = value.As<Undefined>()->name;
  return InvalidArgument(fmt::format("{} is undefined", name ? "'" + *name + "'" : "a value"));
}

Result<Value> MemberOf(const Value& value, std::string_view name) {
  if (value.IsUndefined()) return Fail(UndefinedError(value));
  if (const LoopRef* const loop = value.As<LoopRef>()) {
    if (!HasMethod(value, name)) return LoopMember(**loop, name);
  }
  if (HasMethod(value, name)) {
    return Value::OfRef(MethodRef(std::make_shared<const Method>(
        Method{std::make_shared<const Value>(value), std::string(name)})));
  }
  const Value* found = nullptr;
  if (value.IsDict()) found = FindMember(value.members(), name);
  if (const NamespaceRef* const of = value.As<NamespaceRef>()) {
    found = FindMember((*of)->members, name);
  }
  return found != nullptr ? *found : Value::Missing(MissingText(value, name));
}

Result<Value> ItemOf(const Value& value, const Value& key) {
  if (value.IsUndefined()) return Fail(UndefinedError(value));
  if (value.IsDict()) {
    if (const Value* const found = FindMember(value.members(), key)) return *found;
  } else if (key.integer() != nullptr && value.IsList()) {
    if (const auto place = PlaceOf(*key.integer(), value.items().size())) {
      return value.items()[*place];
    }
  } else if (key.integer() != nullptr && value.IsText()) {
    const std::vector<std::string> all = CharactersOf(value.text());
    if (const auto place = PlaceOf(*key.integer(), all.size())) return Value::Of(all[*place]);
  }
  if (key.IsText()) return MemberOf(value, key.text());
  const Result<std::string> text = ToText(key);
  return Value::Missing(MissingText(value, text.value_or(key.TypeName())));
}

Result<bool> IsIn(const Value& item, const Value& container) {
  if (container.IsText()) {
    if (item.IsText()) return container.text().find(item.text()) != std::string::npos;
    return Fail(InvalidArgument(fmt::format("a {} is in no text", item.TypeName())));
  }
  if (container.IsDict()) return FindMember(container.members(), item) != nullptr;
  MW_ASSIGN_OR_RETURN(const Values items, ItemsOf(container));
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& other) { return Equal(item, other); });
}

}  // namespace meshwright::tokenizer
