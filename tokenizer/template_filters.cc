// Filters.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>

#include "tokenizer/template_builtins.h"
#include "tokenizer/template_json.h"
#include "tokenizer/template_text.h"

namespace meshwright::tokenizer {
namespace {

using Arguments = CallArguments;

// Items of what is given, each of which costs a step.
Result<Values> Through(const Value& of, Budget& budget) {
  MW_ASSIGN_OR_RETURN(Values items, ItemsOf(of));
  MW_TRY(budget.Spend(static_cast<int64_t>(items.size())));
  return items;
}

bool Flag(const Arguments& arguments, size_t place, std::string_view name) {
  const Value* const value = arguments.Get(place, name);
  return value != nullptr && value->Truth();
}

// "a.b.0" of an item, as jinja2's attribute arguments have it.
Result<Value> PathOf(Value item, const Value& path) {
  if (!path.IsText()) return ItemOf(item, path);
  for (const std::string& part : SplitText(path.text(), ".", -1)) {
    const bool number =
        !part.empty() && part.size() < 10 &&
        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    MW_ASSIGN_OR_RETURN(
        item, ItemOf(item, number ? Value::Of(int64_t{std::stoll(part)}) : Value::Of(part)));
  }
  return item;
}

Result<std::string> TextOf(const Value& value, Budget& budget) {
  MW_ASSIGN_OR_RETURN(std::string text, ToText(value));
  MW_TRY(budget.CheckText(text.size()));
  return text;
}

Result<Value> ToJsonFilter(const Value& of, const Arguments& arguments, Budget& budget) {
  MW_TRY(arguments.Check("tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ascii = Flag(arguments, 0, "ensure_ascii");
  style.sorted = Flag(arguments, 3, "sort_keys");
  if (const Value* const indent = arguments.Get(1, "indent"); indent && !indent->IsNone()) {
    if (indent->IsText()) {
      style.indent = indent->text();
    } else {
      MW_ASSIGN_OR_RETURN(const int64_t width, indent->ToInt("indent"));
      style.indent = std::string(static_cast<size_t>(std::clamp<int64_t>(width, 0, 64)), ' ');
    }
  }
  if (const Value* const between = arguments.Get(2, "separators"); between && !between->IsNone()) {
    if (!between->IsList() || between->items().size() != 2 || !between->items()[0].IsText() ||
        !between->items()[1].IsText()) {
      return Fail(InvalidArgument("tojson: separators are two texts"));
    }
    style.between = between->items()[0].text();
    style.colon = between->items()[1].text();
  }
  MW_ASSIGN_OR_RETURN(std::string json, ToJson(of, style));
  return budget.Made(std::move(json));
}

Result<Value> FromJsonFilter(const Value& of, const Arguments& arguments, Budget& budget) {
  MW_TRY(arguments.Check("from_json", {}));
  if (!of.IsText()) return Fail(InvalidArgument("from_json wants a text"));
  MW_TRY(budget.Spend(static_cast<int64_t>(of.text().size())));
  return FromJson(of.text());
}

Result<Value> Length(const Value& of, const Arguments& arguments, Budget&) {
  MW_TRY(arguments.Check("length", {}));
  if (of.IsUndefined()) return Value::Of(int64_t{0});
  if (of.IsText()) return Value::Of(CharacterCount(of.text()));
  if (of.IsList()) return Value::Of(static_cast<int64_t>(of.items().size()));
  if (of.IsDict()) return Value::Of(static_cast<int64_t>(of.members().size()));
  return Fail(InvalidArgument(fmt::format("a {} has no length", of.TypeName())));
}

Result<Value> Trim(const Value& of, const Arguments& arguments, Budget& budget) {
  MW_TRY(arguments.Check("trim", {"chars"}));
  MW_ASSIGN_OR_RETURN(const std::string text, TextOf(of, budget));
  const Value* const set = arguments.Get(0, "chars");
  if (set == nullptr || !set->IsText()) {
    return Value::Of(std::string(Stripped(text, StripEnds::kBoth)));
  }
  return Value::Of(std::string(Stripped(text, StripEnds::kBoth, set->text())));
}

template <std::string (*kMap)(std::string_view)>
Result<Value> Mapped(const Value& of, const Arguments& arguments, Budget& budget) {
  MW_TRY(arguments.Check("a filter without arguments", {}));
  MW_ASSIGN_OR_RETURN(const std::string text, TextOf(of, budget));
  return budget.Made(kMap(text));
}
std::string SameText(std::string_view text) { return std::string(text); }
// The filter's words begin behind fewer signs than those of the method.
std::string TitleWords(std::string_view text) {
  std::string out;
  std::string word;
  const auto flush = [&] { out += CapitalText(word), word.clear(); };
  for (const std::string& one : CharactersOf(text)) {
    const bool sign = one.size() == 1 && std::string_view("-({[<").find(one) != std::string::npos;
    if (sign || Stripped(one, StripEnds::kBoth).empty()) {
      flush();
      out += one;
    } else {
      word += one;
    }
  }
  flush();
  return out;
}

Result<Value> Default(const Value& of, const Arguments& arguments, Budget&) {
  MW_TRY(arguments.Check("default", {"default_value", "boolean"}));
  if (!of.IsUndefined() && (of.Truth() || !Flag(arguments, 1, "boolean"))) return of;
  const Value* const absent = arguments.Get(0, "default_value");
  return absent == nullptr ? Value::Of(std::string()) : *absent;
}

Result<Value> Join(const Value& of, const Arguments& arguments, Budget& budget) {
  MW_TRY(arguments.Check("join", {"d", "attribute"}));
  MW_ASSIGN_OR_RETURN(const Values items, Through(of, budget));
  std::string between;
  if (const Value* const d = arguments.Get(0, "d")) {
    MW_ASSIGN_OR_RETURN(between, ToText(*d));
  }
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    Value item = items[i];
    if (const Value* const path = arguments.Get(1, "attribute"); path && !path->IsNone()) {
      MW_ASSIGN_OR_RETURN(item, PathOf(item, *path));
    }
    MW_ASSIGN_OR_RETURN(const std::string text, TextOf(item, budget));
    if (i > 0) out += between;
    out += text;
    if (i % 64 == 0) MW_TRY(budget.CheckText(out.size()));
  }
  return budget.Made(std::move(out));
}

Result<Value> First(const Value& of, const Arguments& arguments, Budget& budget) {
  MW_TRY(arguments.Check("first", {}));
  MW_ASSIGN_OR_RETURN(const Values items, Through(of, budget));
  return items.empty() ? Value::Missing("the first item of nothing") : items.front();
}

Result<Value> Last(const Value& of, const Arguments& arguments, Budget& budget) {
  MW_TRY(arguments.Check("last", {}));
  if (of.As<GeneratorRef>()) return Fail(InvalidArgument("last: a generator has no last item"));
  MW_ASSIGN_OR_RETURN(const Values items, Through(of, budget));
  return items.empty() ? Value::Missing("the last item of nothing") : items.back();
}

Result<Value> Items(const Value& of, const Arguments& arguments, Budget& budget) {
  MW_TRY(arguments.Check("items", {}));
  Values pairs;
  if (of.IsUndefined()) return Value::Generated({});
  if (!of.IsDict()) return Fail(InvalidArgument(fmt::format("a {} has no items", of.TypeName())));
  MW_TRY(budget.Spend(static_cast<int64_t>(of.members().size())));
  for (const auto& [key, value] : of.members()) {
    MW_ASSIGN_OR_RETURN(Value pair, Value::List({key, value}, true));
    pairs.push_back(std::move(pair));
  }
  return Value::Generated(std::move(pairs));
}

Result<Value> ListFilter(const Value& of, const Arguments& arguments, Budget& budget) {
  MW_TRY(arguments.Check("list", {}));
  MW_ASSIGN_OR_RETURN(Values items, Through(of, budget));
  return Value::List(std::move(items));
}

Result<Value> Reverse(const Value& of, const Arguments& arguments, Budget& budget) {
  MW_TRY(arguments.Check("reverse", {}));
  MW_ASSIGN_OR_RETURN(Values items, Through(of, budget));
  std::reverse(items.begin(), items.end());
  if (!of.IsText()) return Value::Generated(std::move(items));
  std::string text;
  for (const Value& item : items) text += item.text();
  return Value::Of(std::move(text));
}

// What items are compared by: a member, texts in lower case unless told otherwise.
struct Sorting {
  const Value* attribute = nullptr;
  bool case_sensitive = false;
};

Result<Value> SortKey(const Value& item, const Sorting& by) {
  Value key = item;
  if (by.attribute != nullptr && !by.attribute->IsNone()) {
    MW_ASSIGN_OR_RETURN(key, PathOf(item, *by.attribute));
  }
  if (key.IsText() && !by.case_sensitive) return Value::Of(LowerText(key.text()));
  return key;
}

Status SortItems(Values& items, const Sorting& by, bool reverse) {
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : items) {
    MW_ASSIGN_OR_RETURN(Value key, SortKey(item, by));
    keyed.emplace_back(std::move(key), std::move(item));
  }
  // What has no order is found before the sort, which needs one: each against the first.
  for (size_t i = 1; i < keyed.size(); ++i) MW_TRY(Less(keyed[0].first, keyed[i].first));
  Status failed;
  const auto less = [&](const auto& a, const auto& b) {
    const Result<bool> is = reverse ? Less(b.first, a.first) : Less(a.first, b.first);
    if (!is.has_value()) failed = is.error();
    return is.has_value() && *is;
  };
  std::stable_sort(keyed.begin(), keyed.end(), less);
  MW_TRY(failed);
  for (size_t i = 0; i < items.size(); ++i) items[i] = std::move(keyed[i].second);
  return OkStatus();
}

Result<Value> Sort(const Value& of, const Arguments& arguments, Budget& budget) {
  MW_TRY(arguments.Check("sort", {"reverse", "case_sensitive", "attribute"}));
  MW_ASSIGN_OR_RETURN(Values items, Through(of, budget));
  MW_TRY(budget.Spend(static_cast<int64_t>(items.size()) * 8));
  MW_TRY(SortItems(items, {arguments.Get(2, "attribute"), Flag(arguments, 1, "case_sensitive")},
                   Flag(arguments, 0, "reverse")));
  return Value::List(std::move(items));
}

Result<Value> DictSort(const Value& of, const Arguments& arguments, Budget& budget) {
  MW_TRY(arguments.Check("dictsort", {"case_sensitive", "by", "reverse"}));
  if (!of.IsDict()) return Fail(InvalidArgument(fmt::format("dictsort of a {}", of.TypeName())));
  const Value* const by = arguments.Get(1, "by");
  const bool by_value = by != nullptr && by->IsText() && by->text() == "value";
  Arguments none;
  MW_ASSIGN_OR_RETURN(const Value pairs, Items(of, none, budget));
  MW_ASSIGN_OR_RETURN(Values items, ItemsOf(pairs));
  const Value place = Value::Of(int64_t{by_value ? 1 : 0});
  MW_TRY(SortItems(items, {&place, Flag(arguments, 0, "case_sensitive")},
                   Flag(arguments, 2, "reverse")));
  return Value::List(std::move(items));
}

Result<Value> Unique(const Value& of, const Arguments& arguments, Budget& budget) {
  MW_TRY(arguments.Check("unique", {"case_sensitive", "attribute"}));
  MW_ASSIGN_OR_RETURN(const Values items, Through(of, budget));
  const Sorting by = {arguments.Get(1, "attribute"), Flag(arguments, 0, "case_sensitive")};
  Values keys;
  Values kept;
  for (const Value& item : items) {
    MW_ASSIGN_OR_RETURN(Value key, SortKey(item, by));
    MW_TRY(budget.Spend(static_cast<int64_t>(keys.size())));
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& k) { return Equal(k, key); })) {
      continue;
    }
    keys.push_back(std::move(key));
    kept.push_back(item);
  }
  return Value::Generated(std::move(kept));
}

template <bool kMax>
Result<Value> Extreme(const Value& of, const Arguments& arguments, Budget& budget) {
  MW_TRY(arguments.Check(kMax ? "max" : "min", {"case_sensitive", "attribute"}));
  MW_ASSIGN_OR_RETURN(const Values items, Through(of, budget));
  const Sorting by = {arguments.Get(1, "attribute"), Flag(arguments, 0, "case_sensitive")};
  if (items.empty()) return Value::Missing("the smallest or largest item of nothing");
  Value best = items[0];
  MW_ASSIGN_OR_RETURN(Value best_key, SortKey(best, by));
  for (size_t i = 1; i < items.size(); ++i) {
    MW_ASSIGN_OR_RETURN(Value key, SortKey(items[i], by));
    MW_ASSIGN_OR_RETURN(const bool better, kMax ? Less(best_key, key) : Less(key, best_key));
    if (!better) continue;
    best = items[i];
    best_key = std::move(key);
  }
  return best;
}

Result<Value> Replace(const Value& of, const Arguments& arguments, Budget& budget) {
  MW_TRY(arguments.Check("replace", {"old", "new", "count"}));
  MW_ASSIGN_OR_RETURN(const std::string text, TextOf(of, budget));
  const Value* const from = arguments.Get(0, "old");
  const Value* const to = arguments.Get(1, "new");
  if (from == nullptr || to == nullptr) return Fail(InvalidArgument("replace wants two texts"));
  MW_ASSIGN_OR_RETURN(const std::string old_text, ToText(*from));
  MW_ASSIGN_OR_RETURN(const std::string new_text, ToText(*to));
  int64_t most = -1;
  if (const Value* const count = arguments.Get(2, "count"); count && !count->IsNone()) {
    MW_ASSIGN_OR_RETURN(most, count->ToInt("count"));
  }
  MW_TRY(budget.CheckText(ReplacedBytes(text, old_text, new_text, most)));
  return budget.Made(ReplacedText(text, old_text, new_text, most));
}

Result<Value> Indent(const Value& of, const Arguments& arguments, Budget& budget) {
  MW_TRY(arguments.Check("indent", {"width", "first", "blank"}));
  std::string by(4, ' ');
  if (const Value* const width = arguments.Get(0, "width")) {
    if (width->IsText()) {
      by = width->text();
    } else {
      MW_ASSIGN_OR_RETURN(const int64_t spaces, width->ToInt("width"));
      by.assign(static_cast<size_t>(std::clamp<int64_t>(spaces, 0, 4096)), ' ');
    }
  }
  MW_ASSIGN_OR_RETURN(const std::string text, TextOf(of, budget));
  const std::vector<std::string> lines = SplitLines(text + "\n", false);
  const bool blank = Flag(arguments, 2, "blank");
  MW_TRY(budget.CheckText(text.size() + lines.size() * by.size()));
  std::string out = Flag(arguments, 1, "first") ? by : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += "\n";
    if (i > 0 && (blank || !lines[i].empty())) out += by;
    out += lines[i];
  }
  return budget.Made(std::move(out));
}

// The number that a text is, as Python reads it; nothing where it is none.
std::optional<double> NumberOf(const std::string& text) {
  std::string plain(Stripped(text, StripEnds::kBoth));
  std::erase(plain, '_');
  if (plain.starts_with('+')) plain.erase(0, 1);
  double value = 0;
  const auto read = std::from_chars(plain.data(), plain.data() + plain.size(), value);
  if (read.ec != std::errc() || read.ptr != plain.data() + plain.size()) return std::nullopt;
  return value;
}

Result<Value> ToIntFilter(const Value& of, const Arguments& arguments, Budget&) {
  MW_TRY(arguments.Check("int", {"default"}));
  const Value* const absent = arguments.Get(0, "default");
  const Value other = absent == nullptr ? Value::Of(int64_t{0}) : *absent;
  if (of.IsUndefined()) return Fail(UndefinedError(of));
  std::optional<double> number;
  if (of.IsText()) {
    std::string plain(Stripped(of.text(), StripEnds::kBoth));
    int64_t whole = 0;
    const auto read = std::from_chars(plain.data(), plain.data() + plain.size(), whole);
    if (read.ec == std::errc() && read.ptr == plain.data() + plain.size()) return Value::Of(whole);
    number = NumberOf(of.text());
  } else if (of.IsNumber()) {
    if (of.integer() != nullptr) return of;
    number = of.real();
  }
  if (!number || !(std::abs(*number) < 9e18)) return other;
  return Value::Of(static_cast<int64_t>(*number));
}

Result<Value> ToFloatFilter(const Value& of, const Arguments& arguments, Budget&) {
  MW_TRY(arguments.Check("float", {"default"}));
  const Value* const absent = arguments.Get(0, "default");
  if (of.IsUndefined()) return Fail(UndefinedError(of));
  std::optional<double> number;
  if (of.IsText()) number = NumberOf(of.text());
  if (of.IsNumber()) number = of.real();
  if (number) return Value::Of(*number);
  return absent == nullptr ? Value::Of(0.0) : *absent;
}

Result<Value> Absolute(const Value& of, const Arguments& arguments, Budget&) {
  MW_TRY(arguments.Check("abs", {}));
  if (!of.IsNumber()) return Fail(InvalidArgument(fmt::format("abs of a {}", of.TypeName())));
  if (of.As<double>()) return Value::Of(std::abs(of.real()));
  MW_ASSIGN_OR_RETURN(const int64_t whole, of.ToInt("abs"));
  if (whole == INT64_MIN) return Fail(InvalidArgument("abs: the number is too large"));
  return Value::Of(whole < 0 ? -whole : whole);
}

Result<Value> Same(const Value& of, const Arguments&, Budget&) { return of; }

// map(attribute=".."), or map("filter", arguments ..).
Result<Value> Map(const Value& of, const Arguments& arguments, Budget& budget) {
  MW_ASSIGN_OR_RETURN(const Values items, Through(of, budget));
  Values made;
  if (arguments.positional.empty()) {
    MW_TRY(arguments.Check("map", {"attribute", "default"}));
    const Value* const path = arguments.Get(SIZE_MAX, "attribute");
    const Value* const absent = arguments.Get(SIZE_MAX, "default");
    if (path == nullptr) return Fail(InvalidArgument("map wants a filter or an attribute"));
    for (const Value& item : items) {
      MW_ASSIGN_OR_RETURN(Value value, PathOf(item, *path));
      made.push_back(value.IsUndefined() && absent != nullptr ? *absent : std::move(value));
    }
    return Value::Generated(std::move(made));
  }
  const Value& name = arguments.positional[0];
  const TemplateFilter* const filter = name.IsText() ? FindFilter(name.text()) : nullptr;
  if (filter == nullptr) {
    MW_ASSIGN_OR_RETURN(const std::string text, ToText(name));
    return Fail(Unimplemented(fmt::format("map: there is no filter '{}'", text)));
  }
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  for (const Value& item : items) {
    MW_ASSIGN_OR_RETURN(Value value, filter->apply(item, rest, budget));
    made.push_back(std::move(value));
  }
  return Value::Generated(std::move(made));
}

// select and reject, of items or of a member of theirs.
template <bool kKeeps, bool kMember>
Result<Value> Select(const Value& of, const Arguments& arguments, Budget& budget) {
  MW_ASSIGN_OR_RETURN(const Values items, Through(of, budget));
  Arguments rest = arguments;
  Value path;
  const auto take = [&] {
    Value value = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
    return value;
  };
  if (kMember) {
    if (rest.positional.empty()) return Fail(InvalidArgument("selectattr wants an attribute"));
    path = take();
  }
  const TemplateTest* test = nullptr;
  if (!rest.positional.empty()) {
    const Value name = take();
    test = name.IsText() ? FindTest(name.text()) : nullptr;
    if (test == nullptr) {
      MW_ASSIGN_OR_RETURN(const std::string text, ToText(name));
      return Fail(Unimplemented(fmt::format("there is no test '{}'", text)));
    }
  }
  Values kept;
  for (const Value& item : items) {
    Value judged = item;
    if (kMember) {
      MW_ASSIGN_OR_RETURN(judged, PathOf(item, path));
    }
    bool good = judged.Truth();
    if (test != nullptr) {
      MW_ASSIGN_OR_RETURN(good, test->apply(judged, rest));
    }
    if (good == kKeeps) kept.push_back(item);
  }
  return Value::Generated(std::move(kept));
}

constexpr auto kFilters = std::to_array<TemplateFilter>({{"tojson", ToJsonFilter},
                                                         {"from_json", FromJsonFilter},
                                                         {"length", Length},
                                                         {"count", Length},
                                                         {"trim", Trim},
                                                         {"string", Mapped<SameText>},
                                                         {"safe", Same},
                                                         {"lower", Mapped<LowerText>},
                                                         {"upper", Mapped<UpperText>},
                                                         {"capitalize", Mapped<CapitalText>},
                                                         {"title", Mapped<TitleWords>},
                                                         {"default", Default},
                                                         {"d", Default},
                                                         {"join", Join},
                                                         {"first", First},
                                                         {"last", Last},
                                                         {"items", Items},
                                                         {"list", ListFilter},
                                                         {"reverse", Reverse},
                                                         {"sort", Sort},
                                                         {"dictsort", DictSort},
                                                         {"unique", Unique},
                                                         {"min", Extreme<false>},
                                                         {"max", Extreme<true>},
                                                         {"replace", Replace},
                                                         {"indent", Indent},
                                                         {"int", ToIntFilter},
                                                         {"float", ToFloatFilter},
                                                         {"abs", Absolute},
                                                         {"map", Map},
                                                         {"select", Select<true, false>},
                                                         {"reject", Select<false, false>},
                                                         {"selectattr", Select<true, true>},
                                                         {"rejectattr", Select<false, true>}});

}  // namespace

const TemplateFilter* FindFilter(std::string_view name) {
  for (const TemplateFilter& row : kFilters) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

}  // namespace meshwright::tokenizer
