// Runs a parsed chat template: a tree-walking interpreter with bounds.
//
// Thread rule: a run belongs to one thread; any number of runs share a template.
#pragma once

#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tokenizer/template_ast.h"
#include "tokenizer/template_builtins.h"

namespace meshwright::tokenizer {

// Bytes [begin, end) of a text.
struct TextSpan {
  size_t begin = 0;
  size_t end = 0;
  friend bool operator==(const TextSpan&, const TextSpan&) = default;
};

struct RenderedTemplate {
  std::string text;
  std::vector<TextSpan> generated;  // what {% generation %} blocks wrote
};

struct TemplateInputs {
  std::vector<std::pair<std::string, Value>> variables;
  std::tm now = {};
};

// Errors: kInvalidArgument, with the line: what Python would not do, and what the template itself
// refuses (raise_exception); kResourceExhausted naming the limit.
Result<RenderedTemplate> RunTemplate(const Body& body, const TemplateInputs& inputs,
                                     const TemplateLimits& limits);

}  // namespace meshwright::tokenizer
