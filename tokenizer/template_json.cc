#include "tokenizer/template_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json_int.h"
#include "tokenizer/json.h"
#include "tokenizer/unicode.h"

namespace meshwright::tokenizer {
namespace {

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style)
      : style_(style),
        between_(style.between.value_or(style.indent ? "," : ", ")),
        colon_(style.colon.value_or(": ")) {}

  Status Put(const Value& value) {
    if (value.IsNone()) return Add("null");
    if (const bool* const truth = value.As<bool>()) return Add(*truth ? "true" : "false");
    if (const int64_t* const whole = value.integer()) return Add(fmt::format("{}", *whole));
    if (const double* const number = value.As<double>()) return Add(NumberText(*number));
    if (value.IsText()) return PutText(value.text());
    if (value.IsList()) return PutList(value.items());
    if (value.IsDict()) return PutDict(value.members());
    return InvalidArgument(fmt::format("tojson: a {} is no JSON", value.TypeName()));
  }
  std::string Take() && { return std::move(out_); }

 private:
  Status Add(std::string_view text) {
    out_ += text;
    return OkStatus();
  }

  static std::string NumberText(double number) {
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
    return RealText(number);
  }

  Status PutText(std::string_view text) {
    out_ += '"';
    for (size_t at = 0; at < text.size();) {
      const Character next = CharacterAt(text, at);
      PutCharacter(next.code, text.substr(at, next.bytes));
      at += next.bytes;
    }
    out_ += '"';
    return OkStatus();
  }

  void PutCharacter(char32_t code, std::string_view character) {
    constexpr std::string_view kEscaped = "\"\\\n\r\t\f\b";
    constexpr std::string_view kLetters = "\"\\nrtfb";
    const size_t known = code < 0x80 ? kEscaped.find(static_cast<char>(code)) : kEscaped.npos;
    if (known != kEscaped.npos) {
      out_ += '\\';
      out_ += kLetters[known];
    } else if (code < 0x20 || (style_.ascii && code >= 0x7f && code < 0x10000)) {
      out_ += fmt::format("\\u{:04x}", static_cast<uint32_t>(code));
    } else if (style_.ascii && code >= 0x10000) {
      const auto rest = static_cast<uint32_t>(code) - 0x10000;
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
    } else {
      out_ += character;
    }
  }

  void NewLine() {
    if (!style_.indent) return;
    out_ += '\n';
    for (int i = 0; i < level_; ++i) out_ += *style_.indent;
  }

  Status PutList(const Values& items) {
    if (items.empty()) return Add("[]");
    out_ += '[';
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += between_;
      NewLine();
      MW_TRY(Put(items[i]));
    }
    --level_;
    NewLine();
    return Add("]");
  }

  static Result<std::string> KeyText(const Value& key) {
    if (key.IsText()) return key.text();
    if (key.IsNone()) return std::string("null");
    if (const bool* const truth = key.As<bool>()) return std::string(*truth ? "true" : "false");
    if (key.IsNumber()) return ToText(key);
    return Fail(
        InvalidArgument(fmt::format("tojson: a {} is no key of an object", key.TypeName())));
  }

  Status PutDict(const Members& members) {
    if (members.empty()) return Add("{}");
    std::vector<std::pair<std::string, const Value*>> all;
    for (const auto& [key, value] : members) {
      MW_ASSIGN_OR_RETURN(std::string text, KeyText(key));
      all.emplace_back(std::move(text), &value);
    }
    if (style_.sorted) {
      std::stable_sort(all.begin(), all.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
    }
    out_ += '{';
    ++level_;
    for (size_t i = 0; i < all.size(); ++i) {
      if (i > 0) out_ += between_;
      NewLine();
      MW_TRY(PutText(all[i].first));
      out_ += colon_;
      MW_TRY(Put(*all[i].second));
    }
    --level_;
    NewLine();
    return Add("}");
  }

  const JsonStyle& style_;
  const std::string between_;
  const std::string colon_;
  std::string out_;
  int level_ = 0;
};

using OrderedJson = nlohmann::ordered_json;

Result<Value> ValueOf(const OrderedJson& node, int depth) {
  if (depth > Value::kMaxDepth) {
    return Fail(InvalidArgument(fmt::format("is nested deeper than {}", Value::kMaxDepth)));
  }
  switch (node.type()) {
    case OrderedJson::value_t::boolean:
      return Value::Of(node.get<bool>());
    case OrderedJson::value_t::number_unsigned:
    case OrderedJson::value_t::number_integer: {
      const auto number = FindJsonInt(node);
      if (!number) return Fail(InvalidArgument(fmt::format("{} is too large", node.dump())));
      return Value::Of(*number);
    }
    case OrderedJson::value_t::number_float:
      return Value::Of(node.get<double>());
    case OrderedJson::value_t::string:
      return Value::Of(node.get<std::string>());
    case OrderedJson::value_t::array: {
      Values items;
      for (const OrderedJson& item : node) {
        MW_ASSIGN_OR_RETURN(Value value, ValueOf(item, depth + 1));
        items.push_back(std::move(value));
      }
      return Value::List(std::move(items));
    }
    case OrderedJson::value_t::object: {
      Members members;
      for (const auto& [key, item] : node.items()) {
        MW_ASSIGN_OR_RETURN(Value value, ValueOf(item, depth + 1));
        members.emplace_back(Value::Of(key), std::move(value));
      }
      return Value::Dict(std::move(members));
    }
    default:
      return Value::None();
  }
}

}  // namespace

Result<std::string> ToJson(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  MW_TRY(writer.Put(value));
  return std::move(writer).Take();
}

Result<Value> FromJson(std::string_view text) {
  const OrderedJson parsed = OrderedJson::parse(text, nullptr, false);
  if (parsed.is_discarded()) {
    MW_TRY(JsonDocument::Parse(text));  // says where it is wrong
    return Fail(InvalidArgument("is no JSON"));
  }
  return ValueOf(parsed, 0);
}

}  // namespace meshwright::tokenizer
