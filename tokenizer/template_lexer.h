// A chat template's text as tokens.
//
// Text between tags is one token each, with the white space that "-" and the two settings of chat
// templates (trim_blocks, lstrip_blocks) take away already gone.
//
// Thread rule: pure functions. Source: jinja2 3.1, lexer.py.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace meshwright::tokenizer {

enum class TemplateTokenKind : uint8_t {
  kData,   // text between tags
  kOpen,   // {{ or {%, as `text` says
  kClose,  // }} or %}
  kName,
  kString,
  kInteger,
  kReal,
  kOperator,
  kEnd,
};

struct TemplateToken {
  TemplateTokenKind kind = TemplateTokenKind::kEnd;
  std::string text;
  int line = 1;
  bool Is(TemplateTokenKind wanted, std::string_view value) const {
    return kind == wanted && text == value;
  }
};

// Errors: kInvalidArgument, with the line.
Result<std::vector<TemplateToken>> LexTemplate(std::string_view text);

}  // namespace meshwright::tokenizer
