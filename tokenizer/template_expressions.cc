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
class Deeper {
 public:
  explicit Deeper(ExpressionParser& parser) : parser_(parser) { ++parser_.depth_; }
  ~Deeper() { --parser_.depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;
  Status Check() const {
    if (parser_.depth_ <= kMaxNesting) return OkStatus();
    return parser_.Wrong(fmt::format("expressions are nested deeper than {}", kMaxNesting));
  }

 private:
  ExpressionParser& parser_;
};

TemplateToken ExpressionParser::Take() {
  TemplateToken token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}
bool ExpressionParser::SeesOperator(std::string_view text) const {
  return Now().Is(Kind::kOperator, text);
}
bool ExpressionParser::SeesName(std::string_view text) const { return Now().Is(Kind::kName, text); }
bool ExpressionParser::SkipOperator(std::string_view text) {
  if (!SeesOperator(text)) return false;
  Take();
  return true;
}
bool ExpressionParser::SkipName(std::string_view text) {
  if (!SeesName(text)) return false;
  Take();
  return true;
}
Status ExpressionParser::ExpectOperator(std::string_view text) {
  return SkipOperator(text) ? OkStatus() : Wrong(fmt::format("expected '{}'", text));
}
Status ExpressionParser::ExpectClose(std::string_view text) {
  if (!Now().Is(Kind::kClose, text)) return Wrong(fmt::format("expected '{}'", text));
  Take();
  return OkStatus();
}
Result<std::string> ExpressionParser::ExpectName() {
  if (Now().kind != Kind::kName) return Fail(Wrong("expected a name"));
  return Take().text;
}

Status ExpressionParser::Wrong(std::string_view what) const {
  const TemplateToken& token = Now();
  const std::string at = token.kind == Kind::kEnd    ? "the end of the template"
                         : token.kind == Kind::kData ? "a text"
                                                     : fmt::format("'{}'", token.text);
  return InvalidArgument(fmt::format("line {}: {} at {}", token.line, what, at));
}

Result<ExpressionRef> ExpressionParser::Parse(ExpressionOptions options) {
  const Deeper deeper(*this);
  MW_TRY(deeper.Check());
  MW_ASSIGN_OR_RETURN(ExpressionRef value, ParseOr());
  while (options.conditional && SeesName("if")) {
    Node node = NodeOf(ExpressionKind::kConditional, Take().line);
    MW_ASSIGN_OR_RETURN(ExpressionRef condition, ParseOr());
    ExpressionRef otherwise;
    if (SkipName("else")) {
      MW_ASSIGN_OR_RETURN(otherwise, Parse());
    }
    node->parts.push_back(std::move(condition));
    node->parts.push_back(std::move(value));
    node->parts.push_back(std::move(otherwise));
    value = std::move(node);
  }
  return value;
}

Result<ExpressionRef> ExpressionParser::ParseTuple(ExpressionOptions options, bool parenthesized) {
  Node tuple = NodeOf(ExpressionKind::kTuple, Now().line);
  const auto ends = [&] {
    return Now().kind == Kind::kClose || SeesOperator(")") || SeesOperator("=") || SeesName("in");
  };
  bool comma = false;
  while (!ends()) {
    MW_ASSIGN_OR_RETURN(ExpressionRef part, Parse(options));
    tuple->parts.push_back(std::move(part));
    if (!SkipOperator(",")) break;
    comma = true;
  }
  if (tuple->parts.empty() && !parenthesized) return Fail(Wrong("expected an expression"));
  if (tuple->parts.size() != 1 || comma) return ExpressionRef(std::move(tuple));
  return std::move(tuple->parts[0]);
}

Result<ExpressionRef> ExpressionParser::ParseOr() {
  MW_ASSIGN_OR_RETURN(ExpressionRef left, ParseAnd());
  while (SeesName("or")) {
    Node node = NodeOf(ExpressionKind::kOr, Take().line, std::move(left));
    MW_ASSIGN_OR_RETURN(ExpressionRef right, ParseAnd());
    node->parts.push_back(std::move(right));
    left = std::move(node);
  }
  return left;
}

Result<ExpressionRef> ExpressionParser::ParseAnd() {
  MW_ASSIGN_OR_RETURN(ExpressionRef left, ParseNot());
  while (SeesName("and")) {
    Node node = NodeOf(ExpressionKind::kAnd, Take().line, std::move(left));
    MW_ASSIGN_OR_RETURN(ExpressionRef right, ParseNot());
    node->parts.push_back(std::move(right));
    left = std::move(node);
  }
  return left;
}

Result<ExpressionRef> ExpressionParser::ParseNot() {
  if (!SeesName("not")) return ParseCompare();
  const Deeper deeper(*this);
  MW_TRY(deeper.Check());
  const int line = Take().line;
  MW_ASSIGN_OR_RETURN(ExpressionRef of, ParseNot());
  return ExpressionRef(NodeOf(ExpressionKind::kNot, line, std::move(of)));
}

Result<ExpressionRef> ExpressionParser::ParseCompare() {
  MW_ASSIGN_OR_RETURN(ExpressionRef left, ParseBinary(0));
  Node node;
  for (;;) {
    std::string op;
    for (const char* known : {"==", "!=", ">=", "<=", ">", "<"}) {
      if (SeesOperator(known)) op = known;
    }
    const bool not_in = SeesName("not") && tokens_[at_ + 1].Is(Kind::kName, "in");
    if (SeesName("in")) op = "in";
    if (not_in) op = "not in";
    if (op.empty()) break;
    const int line = Take().line;
    if (not_in) Take();
    if (node == nullptr) node = NodeOf(ExpressionKind::kCompare, line, std::move(left));
    MW_ASSIGN_OR_RETURN(ExpressionRef right, ParseBinary(0));
    node->parts.push_back(std::move(right));
    node->operators.push_back(op);
  }
  if (node == nullptr) return left;
  return ExpressionRef(std::move(node));
}

Result<ExpressionRef> ExpressionParser::ParseBinary(int level) {
  static const std::array<std::vector<std::string_view>, 3> kLevels = {
      {{"+", "-"}, {"*", "/", "//", "%"}, {"**"}}};
  const auto next = [&]() -> Parsed {
    if (level == 0) return ParseConcat();
    return level == 2 ? ParseUnary(true) : ParseBinary(level + 1);
  };
  MW_ASSIGN_OR_RETURN(ExpressionRef left, next());
  for (;;) {
    std::string_view op;
    for (const std::string_view known : kLevels[static_cast<size_t>(level)]) {
      if (SeesOperator(known)) op = known;
    }
    if (op.empty()) return left;
    Node node = NodeOf(ExpressionKind::kBinary, Take().line, std::move(left));
    node->name = std::string(op);
    MW_ASSIGN_OR_RETURN(ExpressionRef right, next());
    node->parts.push_back(std::move(right));
    left = std::move(node);
  }
}

Result<ExpressionRef> ExpressionParser::ParseConcat() {
  MW_ASSIGN_OR_RETURN(ExpressionRef first, ParseBinary(1));
  if (!SeesOperator("~")) return first;
  Node node = NodeOf(ExpressionKind::kConcat, Now().line, std::move(first));
  while (SkipOperator("~")) {
    MW_ASSIGN_OR_RETURN(ExpressionRef next, ParseBinary(1));
    node->parts.push_back(std::move(next));
  }
  return ExpressionRef(std::move(node));
}

Result<ExpressionRef> ExpressionParser::ParseUnary(bool with_filters) {
  const Deeper deeper(*this);
  MW_TRY(deeper.Check());
  ExpressionRef value;
  if (SeesOperator("-") || SeesOperator("+")) {
    const TemplateToken sign = Take();
    MW_ASSIGN_OR_RETURN(ExpressionRef of, ParseUnary(false));
    value = NodeOf(sign.text == "-" ? ExpressionKind::kNegative : ExpressionKind::kPositive,
                   sign.line, std::move(of));
  } else {
    MW_ASSIGN_OR_RETURN(value, ParsePrimary());
  }
  MW_ASSIGN_OR_RETURN(value, ParsePostfix(std::move(value)));
  if (!with_filters) return value;
  return ParseFilters(std::move(value));
}

Result<ExpressionRef> ExpressionParser::ParsePrimary() {
  const int line = Now().line;
  if (SkipOperator("(")) {
    MW_ASSIGN_OR_RETURN(ExpressionRef inner, ParseTuple({}, true));
    MW_TRY(ExpectOperator(")"));
    return inner;
  }
  if (SeesOperator("[")) return ParseList();
  if (SeesOperator("{")) return ParseDict();
  if (Now().kind != Kind::kName) return ParseConstant();
  const std::string name = Take().text;
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

Result<ExpressionRef> ExpressionParser::ParseConstant() {
  Node node = NodeOf(ExpressionKind::kConstant, Now().line);
  if (Now().kind == Kind::kString) {
    std::string text;
    while (Now().kind == Kind::kString) text += Take().text;
    node->value = Value::Of(std::move(text));
    return ExpressionRef(std::move(node));
  }
  const std::string& digits = Now().text;
  const char* const end = digits.data() + digits.size();
  if (Now().kind == Kind::kInteger) {
    int64_t whole = 0;
    const auto read = std::from_chars(digits.data(), end, whole);
    if (read.ec != std::errc() || read.ptr != end) return Fail(Wrong("a number is too large"));
    node->value = Value::Of(whole);
  } else if (Now().kind == Kind::kReal) {
    double real = 0;
    const auto read = std::from_chars(digits.data(), end, real);
    if (read.ec != std::errc() || read.ptr != end) return Fail(Wrong("a number is too large"));
    node->value = Value::Of(real);
  } else {
    return Fail(Wrong("expected an expression"));
  }
  Take();
  return ExpressionRef(std::move(node));
}

Result<ExpressionRef> ExpressionParser::ParseList() {
  Node node = NodeOf(ExpressionKind::kList, Take().line);
  while (!SeesOperator("]")) {
    MW_ASSIGN_OR_RETURN(ExpressionRef item, Parse());
    node->parts.push_back(std::move(item));
    if (!SkipOperator(",")) break;
  }
  MW_TRY(ExpectOperator("]"));
  return ExpressionRef(std::move(node));
}

Result<ExpressionRef> ExpressionParser::ParseDict() {
  Node node = NodeOf(ExpressionKind::kDict, Take().line);
  while (!SeesOperator("}")) {
    MW_ASSIGN_OR_RETURN(ExpressionRef key, Parse());
    MW_TRY(ExpectOperator(":"));
    MW_ASSIGN_OR_RETURN(ExpressionRef value, Parse());
    node->parts.push_back(std::move(key));
    node->parts.push_back(std::move(value));
    if (!SkipOperator(",")) break;
  }
  MW_TRY(ExpectOperator("}"));
  return ExpressionRef(std::move(node));
}

Result<ExpressionRef> ExpressionParser::ParsePostfix(ExpressionRef of) {
  for (;;) {
    if (SeesOperator(".") || SeesOperator("[")) {
      MW_ASSIGN_OR_RETURN(of, ParseSubscript(std::move(of)));
    } else if (SeesOperator("(")) {
      Node call = NodeOf(ExpressionKind::kCall, Now().line, std::move(of));
      MW_TRY(ParseArguments(*call));
      of = std::move(call);
    } else {
      return of;
    }
  }
}

Result<ExpressionRef> ExpressionParser::ParseSubscript(ExpressionRef of) {
  const TemplateToken open = Take();
  if (open.text == ".") {
    if (Now().kind == Kind::kName) {
      Node member = NodeOf(ExpressionKind::kMember, open.line, std::move(of));
      member->name = Take().text;
      return ExpressionRef(std::move(member));
    }
    if (Now().kind != Kind::kInteger) return Fail(Wrong("expected a name"));
    Node item = NodeOf(ExpressionKind::kItem, open.line, std::move(of));
    MW_ASSIGN_OR_RETURN(ExpressionRef index, ParseConstant());
    item->parts.push_back(std::move(index));
    return ExpressionRef(std::move(item));
  }
  Node node = NodeOf(ExpressionKind::kItem, open.line, std::move(of));
  while (!SeesOperator("]")) {
    ExpressionRef part;
    if (!SeesOperator(":")) {
      MW_ASSIGN_OR_RETURN(part, Parse());
    }
    node->parts.push_back(std::move(part));
    if (SeesOperator("]")) break;
    MW_TRY(ExpectOperator(":"));
    node->kind = ExpressionKind::kSlice;
    if (node->parts.size() > 3) return Fail(Wrong("a slice has more than three parts"));
  }
  if (node->parts.size() < 2 && node->kind == ExpressionKind::kItem) {
    return Fail(Wrong("expected an index"));
  }
  MW_TRY(ExpectOperator("]"));
  if (node->kind == ExpressionKind::kSlice) node->parts.resize(4);
  return ExpressionRef(std::move(node));
}

Status ExpressionParser::ParseArguments(Expression& call) {
  MW_TRY(ExpectOperator("("));
  while (!SeesOperator(")")) {
    if (SeesOperator("*") || SeesOperator("**")) {
      return Wrong("arguments by '*' and '**' are not executed");
    }
    const bool named = Now().kind == Kind::kName && tokens_[at_ + 1].Is(Kind::kOperator, "=");
    if (named) {
      std::string name = Take().text;
      Take();
      MW_ASSIGN_OR_RETURN(ExpressionRef value, Parse());
      call.named.emplace_back(std::move(name), std::move(value));
    } else {
      if (!call.named.empty()) return Wrong("an argument without a name follows one with a name");
      MW_ASSIGN_OR_RETURN(ExpressionRef value, Parse());
      call.parts.push_back(std::move(value));
    }
    if (!SkipOperator(",")) break;
  }
  return ExpectOperator(")");
}

Result<ExpressionRef> ExpressionParser::ParseFilter(ExpressionRef of) {
  Node node = NodeOf(ExpressionKind::kFilter, Now().line, std::move(of));
  if (Now().kind != Kind::kName) return Fail(Wrong("expected the name of a filter"));
  node->filter = FindFilter(Now().text);
  if (node->filter == nullptr) return Fail(Wrong("there is no such filter here:"));
  node->name = Take().text;
  if (SeesOperator("(")) MW_TRY(ParseArguments(*node));
  return ExpressionRef(std::move(node));
}

Result<ExpressionRef> ExpressionParser::ParseFilters(ExpressionRef of) {
  for (;;) {
    if (SkipOperator("|")) {
      MW_ASSIGN_OR_RETURN(of, ParseFilter(std::move(of)));
    } else if (SkipName("is")) {
      MW_ASSIGN_OR_RETURN(of, ParseTest(std::move(of)));
    } else if (SeesOperator("(")) {  // of what a filter or a test gives
      Node call = NodeOf(ExpressionKind::kCall, Now().line, std::move(of));
      MW_TRY(ParseArguments(*call));
      of = std::move(call);
    } else {
      return of;
    }
  }
}

Result<ExpressionRef> ExpressionParser::ParseTest(ExpressionRef of) {
  Node node = NodeOf(ExpressionKind::kTest, Now().line, std::move(of));
  const bool negated = SkipName("not");
  if (Now().kind != Kind::kName) return Fail(Wrong("expected the name of a test"));
  node->test = FindTest(Now().text);
  if (node->test == nullptr) return Fail(Wrong("there is no such test here:"));
  node->name = Take().text;
  const bool value = Now().kind == Kind::kString || Now().kind == Kind::kInteger ||
                     Now().kind == Kind::kReal || SeesOperator("[") || SeesOperator("{");
  const bool name = Now().kind == Kind::kName && !SeesName("else") && !SeesName("or") &&
                    !SeesName("and") && !SeesName("is") && !SeesName("if") && !SeesName("in");
  if (SeesOperator("(")) {
    MW_TRY(ParseArguments(*node));
  } else if (value || name) {
    MW_ASSIGN_OR_RETURN(ExpressionRef argument, ParsePrimary());
    MW_ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    node->parts.push_back(std::move(argument));
  }
  if (!negated) return ExpressionRef(std::move(node));
  const int line = node->line;
  return ExpressionRef(NodeOf(ExpressionKind::kNot, line, std::move(node)));
}

}  // namespace meshwright::tokenizer
