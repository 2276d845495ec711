#include "tokenizer/template_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>

#include "base/text.h"
#include "tokenizer/template_expressions.h"

namespace meshwright::tokenizer {
namespace {

using Kind = TemplateTokenKind;
using Node = std::unique_ptr<Statement>;
using Names = std::initializer_list<std::string_view>;

constexpr int kMaxNesting = 150;

// Where a statement stands, which decides what it may be.
struct Place {
  bool loop = false;
  bool top = true;  // not within a loop, a macro or a block
  int depth = 0;
  Place Within(bool in_loop) const { return {in_loop, false, depth + 1}; }
  Place Branch() const { return {loop, top, depth + 1}; }
};

// "a", "a.b" where members may be assigned, "a, b", "(a, b)".
Status ParseTargets(TokenReader& in, Statement& node, bool members) {
  const bool parenthesis = in.SkipOperator("(");
  for (;;) {
    Target target;
    MW_ASSIGN_OR_RETURN(target.name, in.ExpectName());
    if (members && in.SkipOperator(".")) {
      MW_ASSIGN_OR_RETURN(target.member, in.ExpectName());
    }
    node.targets.push_back(std::move(target));
    if (!in.SkipOperator(",")) break;
    node.unpacks = true;
    if (in.Now().kind != Kind::kName || in.SeesName("in")) break;
  }
  return parenthesis ? in.ExpectOperator(")") : OkStatus();
}

class Parser {
 public:
  explicit Parser(std::vector<TemplateToken> tokens) : in_(std::move(tokens)) {}

  Result<Body> Run() { return ParseBody({}, {}); }

 private:
  Node NodeOf(StatementKind kind) const {
    auto node = std::make_unique<Statement>();
    node->kind = kind;
    node->line = in_.Now().line;
    return node;
  }

  // Statements up to a tag of `ends`, whose name is taken.
  Result<Body> ParseBody(Names ends, Place place, std::string* end = nullptr) {
    if (place.depth > kMaxNesting) {
      return Fail(in_.Wrong(fmt::format("tags are nested deeper than {}", kMaxNesting)));
    }
    Body body;
    for (;;) {
      if (in_.Now().kind == Kind::kEnd) {
        if (ends.size() == 0) return body;
        return Fail(in_.Wrong(fmt::format("expected {{% {} %}}", *(ends.end() - 1))));
      }
      if (in_.Now().kind == Kind::kData) {
        Node node = NodeOf(StatementKind::kData);
        node->text = in_.Take().text;
        body.push_back(std::move(node));
        continue;
      }
      const TemplateToken open = in_.Take();
      if (open.text == "{{") {
        Node node = NodeOf(StatementKind::kOutput);
        MW_ASSIGN_OR_RETURN(node->expression, ParseTuple(in_, {}));
        MW_TRY(in_.ExpectClose("}}"));
        body.push_back(std::move(node));
        continue;
      }
      const std::string name = in_.Now().text;
      if (in_.Now().kind == Kind::kName &&
          std::find(ends.begin(), ends.end(), name) != ends.end()) {
        in_.Take();
        if (end != nullptr) *end = name;
        return body;
      }
      MW_ASSIGN_OR_RETURN(StatementRef statement, ParseStatement(place));
      body.push_back(std::move(statement));
    }
  }

  // A body whose end tag has nothing but its name.
  Result<Body> ParseBlock(std::string_view end, Place place) {
    MW_TRY(in_.ExpectClose("%}"));
    MW_ASSIGN_OR_RETURN(Body body, ParseBody({end}, place));
    MW_TRY(in_.ExpectClose("%}"));
    return body;
  }

  Result<StatementRef> ParseStatement(Place place) {
    using Rule = Result<StatementRef> (Parser::*)(Place);
    struct Row {
      std::string_view tag;
      Rule rule;
    };
    static constexpr std::array<Row, 8> kRows = {{{"if", &Parser::ParseIf},
                                                  {"for", &Parser::ParseFor},
                                                  {"set", &Parser::ParseSet},
                                                  {"macro", &Parser::ParseMacro},
                                                  {"filter", &Parser::ParseFilter},
                                                  {"generation", &Parser::ParseGeneration},
                                                  {"break", &Parser::ParseJump},
                                                  {"continue", &Parser::ParseJump}}};
    for (const Row& row : kRows) {
      if (in_.SeesName(row.tag)) return (this->*row.rule)(place);
    }
    const Status wrong = in_.Wrong("this tag is not executed:");
    return Fail(Unimplemented(wrong.message()));
  }

  // "if" and "elif" are the same but for what stands before them.
  Result<StatementRef> ParseIf(Place place) {
    Node node = NodeOf(StatementKind::kIf);
    in_.Take();
    return ParseBranch(std::move(node), place.Branch());
  }

  Result<StatementRef> ParseBranch(Node node, Place place) {
    MW_ASSIGN_OR_RETURN(node->expression, ParseTuple(in_, {.conditional = false}));
    MW_TRY(in_.ExpectClose("%}"));
    std::string end;
    MW_ASSIGN_OR_RETURN(node->body, ParseBody({"elif", "else", "endif"}, place, &end));
    if (end == "elif") {
      Node next = NodeOf(StatementKind::kIf);
      place.depth += 1;
      MW_ASSIGN_OR_RETURN(StatementRef branch, ParseBranch(std::move(next), place));
      node->otherwise.push_back(std::move(branch));
      return StatementRef(std::move(node));
    }
    MW_TRY(in_.ExpectClose("%}"));
    if (end == "else") {
      MW_ASSIGN_OR_RETURN(node->otherwise, ParseBody({"endif"}, place));
      MW_TRY(in_.ExpectClose("%}"));
    }
    return StatementRef(std::move(node));
  }

  Result<StatementRef> ParseFor(Place place) {
    Node node = NodeOf(StatementKind::kFor);
    in_.Take();
    MW_TRY(ParseTargets(in_, *node, false));
    if (!in_.SkipName("in")) return Fail(in_.Wrong("expected 'in'"));
    MW_ASSIGN_OR_RETURN(node->expression, ParseTuple(in_, {.conditional = false}));
    if (in_.SkipName("if")) {
      MW_ASSIGN_OR_RETURN(node->condition, ParseExpression(in_));
    }
    if (in_.SeesName("recursive")) return Fail(Unimplemented(in_.Wrong("not executed:").message()));
    MW_TRY(in_.ExpectClose("%}"));
    std::string end;
    MW_ASSIGN_OR_RETURN(node->body, ParseBody({"else", "endfor"}, place.Within(true), &end));
    MW_TRY(in_.ExpectClose("%}"));
    if (end == "else") {
      MW_ASSIGN_OR_RETURN(node->otherwise, ParseBody({"endfor"}, place.Within(place.loop)));
      MW_TRY(in_.ExpectClose("%}"));
    }
    return StatementRef(std::move(node));
  }

  Result<StatementRef> ParseSet(Place place) {
    Node node = NodeOf(StatementKind::kSet);
    in_.Take();
    MW_TRY(ParseTargets(in_, *node, true));
    if (in_.SkipOperator("=")) {
      MW_ASSIGN_OR_RETURN(node->expression, ParseTuple(in_, {}));
      MW_TRY(in_.ExpectClose("%}"));
      return StatementRef(std::move(node));
    }
    node->kind = StatementKind::kSetBlock;
    MW_ASSIGN_OR_RETURN(node->expression, ParseFilters(in_, nullptr));
    MW_ASSIGN_OR_RETURN(node->body, ParseBlock("endset", place.Within(place.loop)));
    return StatementRef(std::move(node));
  }

  Result<StatementRef> ParseMacro(Place place) {
    Node node = NodeOf(StatementKind::kMacro);
    if (!place.top) {
      return Fail(
          Unimplemented(in_.Wrong("within a loop or a block this is not executed:").message()));
    }
    in_.Take();
    MW_ASSIGN_OR_RETURN(node->text, in_.ExpectName());
    MW_TRY(in_.ExpectOperator("("));
    while (!in_.SeesOperator(")")) {
      Target target;
      MW_ASSIGN_OR_RETURN(target.name, in_.ExpectName());
      node->targets.push_back(std::move(target));
      if (in_.SkipOperator("=")) {
        MW_ASSIGN_OR_RETURN(ExpressionRef value, ParseExpression(in_));
        node->defaults.push_back(std::move(value));
      } else if (!node->defaults.empty()) {
        return Fail(in_.Wrong("a parameter without a default follows one with a default"));
      }
      if (!in_.SkipOperator(",")) break;
    }
    MW_TRY(in_.ExpectOperator(")"));
    MW_ASSIGN_OR_RETURN(node->body, ParseBlock("endmacro", place.Within(false)));
    return StatementRef(std::move(node));
  }

  Result<StatementRef> ParseFilter(Place place) {
    Node node = NodeOf(StatementKind::kFilter);
    in_.Take();
    MW_ASSIGN_OR_RETURN(ExpressionRef first, tokenizer::ParseFilter(in_, nullptr));
    MW_ASSIGN_OR_RETURN(node->expression, ParseFilters(in_, std::move(first)));
    MW_ASSIGN_OR_RETURN(node->body, ParseBlock("endfilter", place.Within(place.loop)));
    return StatementRef(std::move(node));
  }

  Result<StatementRef> ParseGeneration(Place place) {
    Node node = NodeOf(StatementKind::kGeneration);
    in_.Take();
    MW_ASSIGN_OR_RETURN(node->body, ParseBlock("endgeneration", place.Within(place.loop)));
    return StatementRef(std::move(node));
  }

  Result<StatementRef> ParseJump(Place place) {
    Node node = NodeOf(in_.SeesName("break") ? StatementKind::kBreak : StatementKind::kContinue);
    if (!place.loop) return Fail(in_.Wrong("outside of a loop there is no"));
    in_.Take();
    MW_TRY(in_.ExpectClose("%}"));
    return StatementRef(std::move(node));
  }

  TokenReader in_;
};

}  // namespace

Result<Body> ParseTemplate(std::string_view text) {
  MW_ASSIGN_OR_RETURN(std::vector<TemplateToken> tokens, LexTemplate(text));
  return Parser(std::move(tokens)).Run();
}

}  // namespace meshwright::tokenizer
