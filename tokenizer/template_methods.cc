// Methods of texts, lists and dictionaries.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "tokenizer/template_builtins.h"
#include "tokenizer/template_text.h"

namespace meshwright::tokenizer {
namespace {

using Arguments = CallArguments;

struct MethodRow {
  std::string_view name;
  Result<Value> (*call)(const Value& of, const Arguments& arguments, Budget& budget);
};

Result<std::string> TextArgument(const Arguments& arguments, size_t place, std::string_view name) {
  const Value* const value = arguments.Get(place, name);
  if (value == nullptr) return Fail(InvalidArgument(fmt::format("'{}' is not given", name)));
  if (value->IsUndefined()) return Fail(UndefinedError(*value));
  if (value->IsText()) return value->text();
  return Fail(InvalidArgument(fmt::format("'{}' is a {}, not a text", name, value->TypeName())));
}

Result<int64_t> IntArgument(const Arguments& arguments, size_t place, std::string_view name,
                            int64_t absent) {
  const Value* const value = arguments.Get(place, name);
  return value == nullptr ? Result<int64_t>(absent) : value->ToInt(name);
}

Result<Value> TextsOf(std::vector<std::string> texts, Budget& budget) {
  Values items;
  MW_TRY(budget.Spend(static_cast<int64_t>(texts.size())));
  for (std::string& text : texts) {
    MW_ASSIGN_OR_RETURN(Value value, budget.Made(std::move(text)));
    items.push_back(std::move(value));
  }
  return Value::List(std::move(items));
}

template <StripEnds kEnds>
Result<Value> Strip(const Value& of, const Arguments& arguments, Budget& budget) {
  MW_TRY(arguments.Check("strip", {"chars"}));
  const Value* const set = arguments.Get(0, "chars");
  if (set == nullptr || set->IsNone()) return budget.Made(std::string(Stripped(of.text(), kEnds)));
  MW_ASSIGN_OR_RETURN(const std::string chars, TextArgument(arguments, 0, "chars"));
  return budget.Made(std::string(Stripped(of.text(), kEnds, chars)));
}

template <bool kRight>
Result<Value> Split(const Value& of, const Arguments& arguments, Budget& budget) {
  MW_TRY(arguments.Check("split", {"sep", "maxsplit"}));
  MW_ASSIGN_OR_RETURN(const int64_t most, IntArgument(arguments, 1, "maxsplit", -1));
  const Value* const separator = arguments.Get(0, "sep");
  if (separator == nullptr || separator->IsNone()) {
    if (kRight && most >= 0) {
      return Fail(Unimplemented("rsplit at spaces with maxsplit is not executed"));
    }
    return TextsOf(SplitText(of.text(), std::nullopt, most), budget);
  }
  MW_ASSIGN_OR_RETURN(const std::string at, TextArgument(arguments, 0, "sep"));
  if (at.empty()) return Fail(InvalidArgument("split: the separator is empty"));
  return TextsOf(kRight ? SplitTextRight(of.text(), at, most) : SplitText(of.text(), at, most),
                 budget);
}

Result<Value> Lines(const Value& of, const Arguments& arguments, Budget& budget) {
  MW_TRY(arguments.Check("splitlines", {"keepends"}));
  const Value* const keep = arguments.Get(0, "keepends");
  return TextsOf(SplitLines(of.text(), keep != nullptr && keep->Truth()), budget);
}

template <bool kEnd>
Result<Value> Begins(const Value& of, const Arguments& arguments, Budget&) {
  MW_TRY(arguments.Check(kEnd ? "endswith" : "startswith", {"prefix"}));
  const Value* const prefix = arguments.Get(0, "prefix");
  Values options;
  if (prefix != nullptr && prefix->IsList()) options = prefix->items();
  if (prefix != nullptr && prefix->IsText()) options = {*prefix};
  if (prefix == nullptr || (!prefix->IsList() && !prefix->IsText())) {
    return Fail(InvalidArgument("startswith and endswith want a text, or a tuple of texts"));
  }
  const std::string_view text = of.text();
  return Value::Of(std::any_of(options.begin(), options.end(), [&](const Value& option) {
    if (!option.IsText()) return false;
    return kEnd ? text.ends_with(option.text()) : text.starts_with(option.text());
  }));
}

Result<Value> Replace(const Value& of, const Arguments& arguments, Budget& budget) {
  MW_TRY(arguments.Check("replace", {"old", "new", "count"}));
  MW_ASSIGN_OR_RETURN(const std::string from, TextArgument(arguments, 0, "old"));
  MW_ASSIGN_OR_RETURN(const std::string to, TextArgument(arguments, 1, "new"));
  MW_ASSIGN_OR_RETURN(const int64_t most, IntArgument(arguments, 2, "count", -1));
  MW_TRY(budget.CheckText(ReplacedBytes(of.text(), from, to, most)));
  return budget.Made(ReplacedText(of.text(), from, to, most));
}

template <std::string (*kMap)(std::string_view)>
Result<Value> Mapped(const Value& of, const Arguments& arguments, Budget& budget) {
  MW_TRY(arguments.Check("a method without arguments", {}));
  return budget.Made(kMap(of.text()));
}

template <bool kRight>
Result<Value> Find(const Value& of, const Arguments& arguments, Budget&) {
  MW_TRY(arguments.Check("find", {"sub"}));
  MW_ASSIGN_OR_RETURN(const std::string part, TextArgument(arguments, 0, "sub"));
  const size_t found = kRight ? of.text().rfind(part) : of.text().find(part);
  if (found == std::string::npos) return Value::Of(int64_t{-1});
  return Value::Of(CharacterCount(std::string_view(of.text()).substr(0, found)));
}

Result<Value> Count(const Value& of, const Arguments& arguments, Budget&) {
  MW_TRY(arguments.Check("count", {"sub"}));
  MW_ASSIGN_OR_RETURN(const std::string part, TextArgument(arguments, 0, "sub"));
  return Value::Of(CountOf(of.text(), part));
}

Result<Value> Join(const Value& of, const Arguments& arguments, Budget& budget) {
  MW_TRY(arguments.Check("join", {"iterable"}));
  const Value* const list = arguments.Get(0, "iterable");
  if (list == nullptr) return Fail(InvalidArgument("join wants a list"));
  MW_ASSIGN_OR_RETURN(const Values items, ItemsOf(*list));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].IsText()) {
      return Fail(InvalidArgument(fmt::format("join: item {} is a {}", i, items[i].TypeName())));
    }
    if (i > 0) out += of.text();
    out += items[i].text();
    if (i % 64 == 0) MW_TRY(budget.CheckText(out.size()));
  }
  return budget.Made(std::move(out));
}

template <bool (*kIs)(unsigned char)>
Result<Value> AllAre(const Value& of, const Arguments& arguments, Budget&) {
  MW_TRY(arguments.Check("a method without arguments", {}));
  const std::string& text = of.text();
  return Value::Of(!text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return kIs(static_cast<unsigned char>(c));
  }));
}
bool IsDigitByte(unsigned char c) { return c >= '0' && c <= '9'; }
bool IsSpaceByte(unsigned char c) { return c < 0x80 && IsPythonSpace(c); }

// "{}", "{0}", "{name}", without anything that says how to write it.
Result<Value> Format(const Value& of, const Arguments& arguments, Budget& budget) {
  std::string out;
  const std::string& text = of.text();
  size_t next = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if ((c == '{' || c == '}') && at + 1 < text.size() && text[at + 1] == c) {
      out += c;
      ++at;
      continue;
    }
    if (c != '{') {
      out += c;
      continue;
    }
    const size_t end = text.find('}', at);
    if (end == text.npos) return Fail(InvalidArgument("format: '{' is not closed"));
    const std::string name = text.substr(at + 1, end - at - 1);
    if (name.find_first_of(".[!:") != name.npos) {
      return Fail(Unimplemented(fmt::format("format: '{{{}}}' is not executed", name)));
    }
    const bool number =
        !name.empty() && name.size() < 4 && std::all_of(name.begin(), name.end(), [](char d) {
          return IsDigitByte(static_cast<unsigned char>(d));
        });
    const size_t place = name.empty() ? next++ : number ? std::stoul(name) : SIZE_MAX;
    const Value* const value = arguments.Get(place, name);
    if (value == nullptr)
      return Fail(InvalidArgument(fmt::format("format: no value for '{}'", name)));
    MW_ASSIGN_OR_RETURN(const std::string one, ToText(*value));
    out += one;
    MW_TRY(budget.CheckText(out.size()));
    at = end;
  }
  return budget.Made(std::move(out));
}

Result<Value> Get(const Value& of, const Arguments& arguments, Budget&) {
  MW_TRY(arguments.Check("get", {"key", "default"}));
  const Value* const key = arguments.Get(0, "key");
  if (key == nullptr) return Fail(InvalidArgument("get wants a key"));
  if (const Value* const found = FindMember(of.members(), *key)) return *found;
  const Value* const absent = arguments.Get(1, "default");
  return absent == nullptr ? Value::None() : *absent;
}

enum class Parts { kKeys, kValues, kItems };
template <Parts kParts>
Result<Value> PartsOf(const Value& of, const Arguments& arguments, Budget& budget) {
  MW_TRY(arguments.Check("a method without arguments", {}));
  MW_TRY(budget.Spend(static_cast<int64_t>(of.members().size())));
  Values all;
  for (const auto& [key, value] : of.members()) {
    if (kParts == Parts::kItems) {
      MW_ASSIGN_OR_RETURN(Value pair, Value::List({key, value}, true));
      all.push_back(std::move(pair));
    } else {
      all.push_back(kParts == Parts::kKeys ? key : value);
    }
  }
  return Value::List(std::move(all));
}

Result<Value> CountItems(const Value& of, const Arguments& arguments, Budget&) {
  MW_TRY(arguments.Check("count", {"value"}));
  const Value* const item = arguments.Get(0, "value");
  if (item == nullptr) return Fail(InvalidArgument("count wants a value"));
  return Value::Of(
      static_cast<int64_t>(std::count_if(of.items().begin(), of.items().end(),
                                         [&](const Value& other) { return Equal(*item, other); })));
}

Result<Value> IndexOf(const Value& of, const Arguments& arguments, Budget&) {
  MW_TRY(arguments.Check("index", {"value"}));
  const Value* const item = arguments.Get(0, "value");
  for (size_t i = 0; item != nullptr && i < of.items().size(); ++i) {
    if (Equal(*item, of.items()[i])) return Value::Of(static_cast<int64_t>(i));
  }
  return Fail(InvalidArgument("index: the value is not in the list"));
}

Result<Value> Same(const Value& of, const Arguments& arguments, Budget&) {
  MW_TRY(arguments.Check("copy", {}));
  return of;
}

Result<Value> Changes(const Value&, const Arguments&, Budget&) {
  return Fail(InvalidArgument("a template cannot change a list or a dictionary"));
}

Result<Value> Cycle(const Value& of, const Arguments& arguments, Budget&) {
  if (arguments.positional.empty()) return Fail(InvalidArgument("cycle wants values"));
  return arguments.positional[(*of.As<LoopRef>())->at % arguments.positional.size()];
}

constexpr std::array<MethodRow, 23> kOfText = {{{"split", Split<false>},
                                                {"rsplit", Split<true>},
                                                {"splitlines", Lines},
                                                {"strip", Strip<StripEnds::kBoth>},
                                                {"lstrip", Strip<StripEnds::kLeft>},
                                                {"rstrip", Strip<StripEnds::kRight>},
                                                {"startswith", Begins<false>},
                                                {"endswith", Begins<true>},
                                                {"replace", Replace},
                                                {"upper", Mapped<UpperText>},
                                                {"lower", Mapped<LowerText>},
                                                {"capitalize", Mapped<CapitalText>},
                                                {"title", Mapped<TitleText>},
                                                {"find", Find<false>},
                                                {"rfind", Find<true>},
                                                {"count", Count},
                                                {"join", Join},
                                                {"format", Format},
                                                {"isdigit", AllAre<IsDigitByte>},
                                                {"isdecimal", AllAre<IsDigitByte>},
                                                {"isnumeric", AllAre<IsDigitByte>},
                                                {"isspace", AllAre<IsSpaceByte>},
                                                {"casefold", Mapped<LowerText>}}};
constexpr std::array<MethodRow, 12> kOfDict = {{{"get", Get},
                                                {"items", PartsOf<Parts::kItems>},
                                                {"keys", PartsOf<Parts::kKeys>},
                                                {"values", PartsOf<Parts::kValues>},
                                                {"copy", Same},
                                                {"pop", Changes},
                                                {"popitem", Changes},
                                                {"update", Changes},
                                                {"clear", Changes},
                                                {"setdefault", Changes},
                                                {"fromkeys", Changes},
                                                {"__setitem__", Changes}}};
constexpr std::array<MethodRow, 12> kOfList = {{{"index", IndexOf},
                                                {"count", CountItems},
                                                {"copy", Same},
                                                {"append", Changes},
                                                {"extend", Changes},
                                                {"insert", Changes},
                                                {"pop", Changes},
                                                {"remove", Changes},
                                                {"clear", Changes},
                                                {"sort", Changes},
                                                {"reverse", Changes},
                                                {"__setitem__", Changes}}};
constexpr std::array<MethodRow, 1> kOfLoop = {{{"cycle", Cycle}}};

std::span<const MethodRow> RowsOf(const Value& value) {
  if (value.IsText()) return kOfText;
  if (value.IsDict()) return kOfDict;
  if (value.IsList()) return kOfList;
  if (value.As<LoopRef>() != nullptr) return kOfLoop;
  return {};
}

const MethodRow* FindMethod(const Value& value, std::string_view name) {
  for (const MethodRow& row : RowsOf(value)) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

}  // namespace

bool HasMethod(const Value& value, std::string_view name) {
  return FindMethod(value, name) != nullptr;
}

Result<Value> CallMethod(const Method& method, const CallArguments& arguments, Budget& budget) {
  const MethodRow* const row = FindMethod(*method.of, method.name);
  MW_TRY(budget.Spend(1));
  return row->call(*method.of, arguments, budget);
}

}  // namespace meshwright::tokenizer
