#include "tokenizer/template_expressions.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "tokenizer/template_builtins.h"

namespace meshwright::tokenizer {

using Kind = TemplateTokenKind;

namespace {

constexpr int kMaxNesting = 100;

using Node = std::unique_ptr<Expression>;

Node NodeOf(ExpressionKind kind, int line) {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = line;
  return node;
}

Node NodeOf(ExpressionKind kind, int line, ExpressionRef first) {
  Node node = NodeOf(kind, line);
  node->parts.push_back(std::move(first));
  return node;
}

}  // namespace

// Counts how deep the parser is, which is what bounds it and whatever walks its tree.
class Nested {
 public:
  explicit Nested(TokenReader& parser) : parser_(parser) { ++parser_.depth_; }
  ~Nested() { --parser_.depth_; }
  Nested(const Nested&) = delete;
  Nested& operator=(const Nested&) = delete;
  Status Check() const {
    if (parser_.depth_ <= kMaxNesting) return OkStatus();
    return parser_.Wrong(fmt::format("expressions are nested deeper than {}", kMaxNesting));
  }

 private:
  TokenReader& parser_;
};

TemplateToken TokenReader::Take() {
  TemplateToken token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}
bool TokenReader::SeesOperator(std::string_view text) const {
  return Now().Is(Kind::kOperator, text);
}
bool TokenReader::SeesName(std::string_view text) const { return Now().Is(Kind::kName, text); }
bool TokenReader::SkipOperator(std::string_view text) {
  if (!SeesOperator(text)) return false;
  Take();
  return true;
}
bool TokenReader::SkipName(std::string_view text) {
  if (!SeesName(text)) return false;
  Take();
  return true;
}
Status TokenReader::ExpectOperator(std::string_view text) {
  return SkipOperator(text) ? OkStatus() : Wrong(fmt::format("expected '{}'", text));
}
Status TokenReader::ExpectClose(std::string_view text) {
  if (!Now().Is(Kind::kClose, text)) return Wrong(fmt::format("expected '{}'", text));
  Take();
  return OkStatus();
}
Result<std::string> TokenReader::ExpectName() {
  if (Now().kind != Kind::kName) return Fail(Wrong("expected a name"));
  return Take().text;
}

Status TokenReader::Wrong(std::string_view what) const {
  const TemplateToken& token = Now();
  const std::string at = token.kind == Kind::kEnd    ? "the end of the template"
                         : token.kind == Kind::kData ? "a text"
                                                     : fmt::format("'{}'", token.text);
  return InvalidArgument(fmt::format("line {}: {} at {}", token.line, what, at));
}

namespace {

using Parsed = Result<ExpressionRef>;
Parsed ParseOr(TokenReader& in);
Parsed ParseAnd(TokenReader& in);
Parsed ParseNot(TokenReader& in);
Parsed ParseCompare(TokenReader& in);
// Operators of one precedence; the next higher one is level + 1.
Parsed ParseBinary(TokenReader& in, int level);
Parsed ParseConcat(TokenReader& in);
Parsed ParseUnary(TokenReader& in, bool with_filters);
Parsed ParsePrimary(TokenReader& in);
Parsed ParseConstant(TokenReader& in);
Parsed ParseList(TokenReader& in);
Parsed ParseDict(TokenReader& in);
Parsed ParsePostfix(TokenReader& in, ExpressionRef of);
Parsed ParseSubscript(TokenReader& in, ExpressionRef of);
Parsed ParseTest(TokenReader& in, ExpressionRef of);
Status ParseArguments(TokenReader& in, Expression& call);

}  // namespace

Result<ExpressionRef> ParseExpression(TokenReader& in, ExpressionOptions options) {
  const Nested nested(in);
  MW_TRY(nested.Check());
  MW_ASSIGN_OR_RETURN(ExpressionRef value, ParseOr(in));
  while (options.conditional && in.SeesName("if")) {
    Node node = NodeOf(ExpressionKind::kConditional, in.Take().line);
    MW_ASSIGN_OR_RETURN(ExpressionRef condition, ParseOr(in));
    ExpressionRef otherwise;
    if (in.SkipName("else")) {
      MW_ASSIGN_OR_RETURN(otherwise, ParseExpression(in));
    }
    node->parts.push_back(std::move(condition));
    node->parts.push_back(std::move(value));
    node->parts.push_back(std::move(otherwise));
    value = std::move(node);
  }
  return value;
}

Result<ExpressionRef> ParseTuple(TokenReader& in, ExpressionOptions options, bool parenthesized) {
  Node tuple = NodeOf(ExpressionKind::kTuple, in.Now().line);
  const auto ends = [&] {
    return in.Now().kind == Kind::kClose || in.SeesOperator(")") || in.SeesOperator("=") ||
           in.SeesName("in");
  };
  bool comma = false;
  while (!ends()) {
    MW_ASSIGN_OR_RETURN(ExpressionRef part, ParseExpression(in, options));
    tuple->parts.push_back(std::move(part));
    if (!in.SkipOperator(",")) break;
    comma = true;
  }
  if (tuple->parts.empty() && !parenthesized) return Fail(in.Wrong("expected an expression"));
  if (tuple->parts.size() != 1 || comma) return ExpressionRef(std::move(tuple));
  return std::move(tuple->parts[0]);
}

Result<ExpressionRef> ParseFilter(TokenReader& in, ExpressionRef of) {
  Node node = NodeOf(ExpressionKind::kFilter, in.Now().line, std::move(of));
  if (in.Now().kind != Kind::kName) return Fail(in.Wrong("expected the name of a filter"));
  node->filter = FindFilter(in.Now().text);
  if (node->filter == nullptr) return Fail(in.Wrong("there is no such filter here:"));
  node->name = in.Take().text;
  if (in.SeesOperator("(")) MW_TRY(ParseArguments(in, *node));
  return ExpressionRef(std::move(node));
}

Result<ExpressionRef> ParseFilters(TokenReader& in, ExpressionRef of) {
  for (;;) {
    if (in.SkipOperator("|")) {
      MW_ASSIGN_OR_RETURN(of, ParseFilter(in, std::move(of)));
    } else if (in.SkipName("is")) {
      MW_ASSIGN_OR_RETURN(of, ParseTest(in, std::move(of)));
    } else if (in.SeesOperator("(")) {  // of what a filter or a test gives
      Node call = NodeOf(ExpressionKind::kCall, in.Now().line, std::move(of));
      MW_TRY(ParseArguments(in, *call));
      of = std::move(call);
    } else {
      return of;
    }
  }
}

namespace {

Result<ExpressionRef> ParseOr(TokenReader& in) {
  MW_ASSIGN_OR_RETURN(ExpressionRef left, ParseAnd(in));
  while (in.SeesName("or")) {
    Node node = NodeOf(ExpressionKind::kOr, in.Take().line, std::move(left));
    MW_ASSIGN_OR_RETURN(ExpressionRef right, ParseAnd(in));
    node->parts.push_back(std::move(right));
    left = std::move(node);
  }
  return left;
}

Result<ExpressionRef> ParseAnd(TokenReader& in) {
  MW_ASSIGN_OR_RETURN(ExpressionRef left, ParseNot(in));
  while (in.SeesName("and")) {
    Node node = NodeOf(ExpressionKind::kAnd, in.Take().line, std::move(left));
    MW_ASSIGN_OR_RETURN(ExpressionRef right, ParseNot(in));
    node->parts.push_back(std::move(right));
    left = std::move(node);
  }
  return left;
}

Result<ExpressionRef> ParseNot(TokenReader& in) {
  if (!in.SeesName("not")) return ParseCompare(in);
  const Nested nested(in);
  MW_TRY(nested.Check());
  const int line = in.Take().line;
  MW_ASSIGN_OR_RETURN(ExpressionRef of, ParseNot(in));
  return ExpressionRef(NodeOf(ExpressionKind::kNot, line, std::move(of)));
}

Result<ExpressionRef> ParseCompare(TokenReader& in) {
  MW_ASSIGN_OR_RETURN(ExpressionRef left, ParseBinary(in, 0));
  Node node;
  for (;;) {
    std::string op;
    for (const char* known : {"==", "!=", ">=", "<=", ">", "<"}) {
      if (in.SeesOperator(known)) op = known;
    }
    const bool not_in = in.SeesName("not") && in.Next().Is(Kind::kName, "in");
    if (in.SeesName("in")) op = "in";
    if (not_in) op = "not in";
    if (op.empty()) break;
    const int line = in.Take().line;
    if (not_in) in.Take();
    if (node == nullptr) node = NodeOf(ExpressionKind::kCompare, line, std::move(left));
    MW_ASSIGN_OR_RETURN(ExpressionRef right, ParseBinary(in, 0));
    node->parts.push_back(std::move(right));
    node->operators.push_back(op);
  }
  if (node == nullptr) return left;
  return ExpressionRef(std::move(node));
}

Result<ExpressionRef> ParseBinary(TokenReader& in, int level) {
  static const std::array<std::vector<std::string_view>, 3> kLevels = {
      {{"+", "-"}, {"*", "/", "//", "%"}, {"**"}}};
  const auto next = [&]() -> Result<ExpressionRef> {
    if (level == 0) return ParseConcat(in);
    return level == 2 ? ParseUnary(in, true) : ParseBinary(in, level + 1);
  };
  MW_ASSIGN_OR_RETURN(ExpressionRef left, next());
  for (;;) {
    std::string_view op;
    for (const std::string_view known : kLevels[static_cast<size_t>(level)]) {
      if (in.SeesOperator(known)) op = known;
    }
    if (op.empty()) return left;
    Node node = NodeOf(ExpressionKind::kBinary, in.Take().line, std::move(left));
    node->name = std::string(op);
    MW_ASSIGN_OR_RETURN(ExpressionRef right, next());
    node->parts.push_back(std::move(right));
    left = std::move(node);
  }
}

Result<ExpressionRef> ParseConcat(TokenReader& in) {
  MW_ASSIGN_OR_RETURN(ExpressionRef first, ParseBinary(in, 1));
  if (!in.SeesOperator("~")) return first;
  Node node = NodeOf(ExpressionKind::kConcat, in.Now().line, std::move(first));
  while (in.SkipOperator("~")) {
    MW_ASSIGN_OR_RETURN(ExpressionRef next, ParseBinary(in, 1));
    node->parts.push_back(std::move(next));
  }
  return ExpressionRef(std::move(node));
}

Result<ExpressionRef> ParseUnary(TokenReader& in, bool with_filters) {
  const Nested nested(in);
  MW_TRY(nested.Check());
  ExpressionRef value;
  if (in.SeesOperator("-") || in.SeesOperator("+")) {
    const TemplateToken sign = in.Take();
    MW_ASSIGN_OR_RETURN(ExpressionRef of, ParseUnary(in, false));
    value = NodeOf(sign.text == "-" ? ExpressionKind::kNegative : ExpressionKind::kPositive,
                   sign.line, std::move(of));
  } else {
    MW_ASSIGN_OR_RETURN(value, ParsePrimary(in));
  }
  MW_ASSIGN_OR_RETURN(value, ParsePostfix(in, std::move(value)));
  if (!with_filters) return value;
  return ParseFilters(in, std::move(value));
}

Result<ExpressionRef> ParsePrimary(TokenReader& in) {
  const int line = in.Now().line;
  if (in.SkipOperator("(")) {
    MW_ASSIGN_OR_RETURN(ExpressionRef inner, ParseTuple(in, {}, true));
    MW_TRY(in.ExpectOperator(")"));
    return inner;
  }
  if (in.SeesOperator("[")) return ParseList(in);
  if (in.SeesOperator("{")) return ParseDict(in);
  if (in.Now().kind != Kind::kName) return ParseConstant(in);
  const std::string name = in.Take().text;
  Node node = NodeOf(ExpressionKind::kConstant, line);
  if (name == "true" || name == "True") {
    node->value = Value::Of(true);
  } else if (name == "false" || name == "False") {
    node->value = Value::Of(false);
  } else if (name == "none" || name == "None") {
    node->value = Value::None();
  } else {
    node->kind = ExpressionKind::kName;
    node->name = name;
  }
  return ExpressionRef(std::move(node));
}

Result<ExpressionRef> ParseConstant(TokenReader& in) {
  Node node = NodeOf(ExpressionKind::kConstant, in.Now().line);
  if (in.Now().kind == Kind::kString) {
    std::string text;
    while (in.Now().kind == Kind::kString) text += in.Take().text;
    node->value = Value::Of(std::move(text));
    return ExpressionRef(std::move(node));
  }
  const std::string& digits = in.Now().text;
  const char* const end = digits.data() + digits.size();
  if (in.Now().kind == Kind::kInteger) {
    int64_t whole = 0;
    const auto read = std::from_chars(digits.data(), end, whole);
    if (read.ec != std::errc() || read.ptr != end) return Fail(in.Wrong("a number is too large"));
    node->value = Value::Of(whole);
  } else if (in.Now().kind == Kind::kReal) {
    double real = 0;
    const auto read = std::from_chars(digits.data(), end, real);
    if (read.ec != std::errc() || read.ptr != end) return Fail(in.Wrong("a number is too large"));
    node->value = Value::Of(real);
  } else {
    return Fail(in.Wrong("expected an expression"));
  }
  in.Take();
  return ExpressionRef(std::move(node));
}

Result<ExpressionRef> ParseList(TokenReader& in) {
  Node node = NodeOf(ExpressionKind::kList, in.Take().line);
  while (!in.SeesOperator("]")) {
    MW_ASSIGN_OR_RETURN(ExpressionRef item, ParseExpression(in));
    node->parts.push_back(std::move(item));
    if (!in.SkipOperator(",")) break;
  }
  MW_TRY(in.ExpectOperator("]"));
  return ExpressionRef(std::move(node));
}

Result<ExpressionRef> ParseDict(TokenReader& in) {
  Node node = NodeOf(ExpressionKind::kDict, in.Take().line);
  while (!in.SeesOperator("}")) {
    MW_ASSIGN_OR_RETURN(ExpressionRef key, ParseExpression(in));
    MW_TRY(in.ExpectOperator(":"));
    MW_ASSIGN_OR_RETURN(ExpressionRef value, ParseExpression(in));
    node->parts.push_back(std::move(key));
    node->parts.push_back(std::move(value));
    if (!in.SkipOperator(",")) break;
  }
  MW_TRY(in.ExpectOperator("}"));
  return ExpressionRef(std::move(node));
}

Result<ExpressionRef> ParsePostfix(TokenReader& in, ExpressionRef of) {
  for (;;) {
    if (in.SeesOperator(".") || in.SeesOperator("[")) {
      MW_ASSIGN_OR_RETURN(of, ParseSubscript(in, std::move(of)));
    } else if (in.SeesOperator("(")) {
      Node call = NodeOf(ExpressionKind::kCall, in.Now().line, std::move(of));
      MW_TRY(ParseArguments(in, *call));
      of = std::move(call);
    } else {
      return of;
    }
  }
}

Result<ExpressionRef> ParseSubscript(TokenReader& in, ExpressionRef of) {
  const TemplateToken open = in.Take();
  if (open.text == ".") {
    if (in.Now().kind == Kind::kName) {
      Node member = NodeOf(ExpressionKind::kMember, open.line, std::move(of));
      member->name = in.Take().text;
      return ExpressionRef(std::move(member));
    }
    if (in.Now().kind != Kind::kInteger) return Fail(in.Wrong("expected a name"));
    Node item = NodeOf(ExpressionKind::kItem, open.line, std::move(of));
    MW_ASSIGN_OR_RETURN(ExpressionRef index, ParseConstant(in));
    item->parts.push_back(std::move(index));
    return ExpressionRef(std::move(item));
  }
  Node node = NodeOf(ExpressionKind::kItem, open.line, std::move(of));
  while (!in.SeesOperator("]")) {
    ExpressionRef part;
    if (!in.SeesOperator(":")) {
      MW_ASSIGN_OR_RETURN(part, ParseExpression(in));
    }
    node->parts.push_back(std::move(part));
    if (in.SeesOperator("]")) break;
    MW_TRY(in.ExpectOperator(":"));
    node->kind = ExpressionKind::kSlice;
    if (node->parts.size() > 3) return Fail(in.Wrong("a slice has more than three parts"));
  }
  if (node->parts.size() < 2 && node->kind == ExpressionKind::kItem) {
    return Fail(in.Wrong("expected an index"));
  }
  MW_TRY(in.ExpectOperator("]"));
  if (node->kind == ExpressionKind::kSlice) node->parts.resize(4);
  return ExpressionRef(std::move(node));
}

Status ParseArguments(TokenReader& in, Expression& call) {
  MW_TRY(in.ExpectOperator("("));
  while (!in.SeesOperator(")")) {
    if (in.SeesOperator("*") || in.SeesOperator("**")) {
      return in.Wrong("arguments by '*' and '**' are not executed");
    }
    const bool named = in.Now().kind == Kind::kName && in.Next().Is(Kind::kOperator, "=");
    if (named) {
      std::string name = in.Take().text;
      in.Take();
      MW_ASSIGN_OR_RETURN(ExpressionRef value, ParseExpression(in));
      call.named.emplace_back(std::move(name), std::move(value));
    } else {
      if (!call.named.empty())
        return in.Wrong("an argument without a name follows one with a name");
      MW_ASSIGN_OR_RETURN(ExpressionRef value, ParseExpression(in));
      call.parts.push_back(std::move(value));
    }
    if (!in.SkipOperator(",")) break;
  }
  return in.ExpectOperator(")");
}

Result<ExpressionRef> ParseTest(TokenReader& in, ExpressionRef of) {
  Node node = NodeOf(ExpressionKind::kTest, in.Now().line, std::move(of));
  const bool negated = in.SkipName("not");
  if (in.Now().kind != Kind::kName) return Fail(in.Wrong("expected the name of a test"));
  node->test = FindTest(in.Now().text);
  if (node->test == nullptr) return Fail(in.Wrong("there is no such test here:"));
  node->name = in.Take().text;
  const bool value = in.Now().kind == Kind::kString || in.Now().kind == Kind::kInteger ||
                     in.Now().kind == Kind::kReal || in.SeesOperator("[") || in.SeesOperator("{");
  const bool name = in.Now().kind == Kind::kName && !in.SeesName("else") && !in.SeesName("or") &&
                    !in.SeesName("and") && !in.SeesName("is") && !in.SeesName("if") &&
                    !in.SeesName("in");
  if (in.SeesOperator("(")) {
    MW_TRY(ParseArguments(in, *node));
  } else if (value || name) {
    MW_ASSIGN_OR_RETURN(ExpressionRef argument, ParsePrimary(in));
    MW_ASSIGN_OR_RETURN(argument, ParsePostfix(in, std::move(argument)));
    node->parts.push_back(std::move(argument));
  }
  if (!negated) return ExpressionRef(std::move(node));
  const int line = node->line;
  return ExpressionRef(NodeOf(ExpressionKind::kNot, line, std::move(node)));
}

}  // namespace
}  // namespace meshwright::tokenizer
