// Values of a chat template as JSON, as Python's json.dumps writes it, and back.
//
// Thread rule: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "tokenizer/template_value.h"

namespace meshwright::tokenizer {

struct JsonStyle {
  bool ascii = false;  // other characters as \u escapes
  bool sorted = false;
  std::optional<std::string> indent;   // of a level; without, all stands on one line
  std::optional<std::string> between;  // items; ", ", with an indent ","
  std::optional<std::string> colon;    // ": "
};

// Errors: kInvalidArgument: what JSON cannot say.
Result<std::string> ToJson(const Value& value, const JsonStyle& style);

// Errors: kInvalidArgument, with line and column, and numbers that are too large.
Result<Value> FromJson(std::string_view text);

}  // namespace meshwright::tokenizer
