// Parses the expressions of a chat template, with the precedence of Jinja.
//
// Thread rule: one thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tokenizer/template_ast.h"
#include "tokenizer/template_lexer.h"

namespace meshwright::tokenizer {

// Tokens, read one by one.
class TokenReader {
 public:
  explicit TokenReader(std::vector<TemplateToken> tokens) : tokens_(std::move(tokens)) {}

  const TemplateToken& Now() const { return tokens_[at_]; }
  const TemplateToken& Next() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  TemplateToken Take();
  bool SeesOperator(std::string_view text) const;
  bool SeesName(std::string_view text) const;
  bool SkipOperator(std::string_view text);
  bool SkipName(std::string_view text);
  Status ExpectOperator(std::string_view text);
  Status ExpectClose(std::string_view text);
  Result<std::string> ExpectName();

  // An error at the token that is next.
  Status Wrong(std::string_view what) const;

 private:
  friend class Nested;
  std::vector<TemplateToken> tokens_;
  size_t at_ = 0;
  int depth_ = 0;  // of the expression that is read
};

struct ExpressionOptions {
  bool conditional = true;  // "a if b else c"
};
// Errors of all: kInvalidArgument, with the line.
Result<ExpressionRef> ParseExpression(TokenReader& in, ExpressionOptions options = {});
// One expression, or several with commas between as a tuple. parenthesized: there may be none.
Result<ExpressionRef> ParseTuple(TokenReader& in, ExpressionOptions options,
                                 bool parenthesized = false);
// "| a | b(c)" behind `of`, which is null at the top of a block.
Result<ExpressionRef> ParseFilters(TokenReader& in, ExpressionRef of);
// "name" of a filter and its arguments, the first one of a block.
Result<ExpressionRef> ParseFilter(TokenReader& in, ExpressionRef of);

}  // namespace meshwright::tokenizer
