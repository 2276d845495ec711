// Parses the expressions of a chat template, with the precedence of Jinja.
//
// Thread rule: one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/template_ast.h"
#include "tokenizer/template_lexer.h"

namespace meshwright::tokenizer {

struct ExpressionOptions {
  bool conditional = true;  // "a if b else c"
};

// Reads tokens one by one, and expressions from them.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<TemplateToken> tokens) : tokens_(std::move(tokens)) {}

  const TemplateToken& Now() const { return tokens_[at_]; }
  TemplateToken Take();
  bool SeesOperator(std::string_view text) const;
  bool SeesName(std::string_view text) const;
  bool SkipOperator(std::string_view text);
  bool SkipName(std::string_view text);
  Status ExpectOperator(std::string_view text);
  Status ExpectClose(std::string_view text);
  Result<std::string> ExpectName();

  Result<ExpressionRef> Parse(ExpressionOptions options = {});
  // One expression, or several with commas between as a tuple. parenthesized: there may be none.
  Result<ExpressionRef> ParseTuple(ExpressionOptions options, bool parenthesized = false);
  // "| a | b(c)" behind `of`, which is null at the top of a block.
  Result<ExpressionRef> ParseFilters(ExpressionRef of);
  // "name" of a filter and its arguments, the first one of a block.
  Result<ExpressionRef> ParseFilter(ExpressionRef of);

  // An error at the token that is next.
  Status Wrong(std::string_view what) const;

 private:
  friend class Deeper;
  using Parsed = Result<ExpressionRef>;
  Parsed ParseOr();
  Parsed ParseAnd();
  Parsed ParseNot();
  Parsed ParseCompare();
  // Operators of one precedence; the next higher one is level + 1.
  Parsed ParseBinary(int level);
  Parsed ParseConcat();
  Parsed ParseUnary(bool with_filters);
  Parsed ParsePrimary();
  Parsed ParseConstant();
  Parsed ParseList();
  Parsed ParseDict();
  Parsed ParsePostfix(ExpressionRef of);
  Parsed ParseSubscript(ExpressionRef of);
  Parsed ParseTest(ExpressionRef of);
  Status ParseArguments(Expression& call);

  std::vector<TemplateToken> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace meshwright::tokenizer
