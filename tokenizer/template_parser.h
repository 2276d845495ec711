// From tokens to the tree of a chat template.
//
// Filters, tests and tags that are not executed are refused here, by name and line, so a template
// that was parsed meets none of them later. Depth is bounded: a template is input from anywhere.
//
// Thread rule: pure functions. Source: jinja2 3.1, parser.py.
#pragma once

#include <string_view>

#include "base/result.h"
#include "tokenizer/template_ast.h"

namespace meshwright::tokenizer {

// Errors: kInvalidArgument, kUnimplemented, with the line.
Result<Body> ParseTemplate(std::string_view text);

}  // namespace meshwright::tokenizer
