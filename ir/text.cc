// Text form of graphs. Grammar: ir/text.h.
#include "ir/text.h"

#include <fmt/format.h>

#include <charconv>
#include <set>

#include "ir/text_lexer.h"

namespace meshwright::ir {
namespace {

std::string FormatValue(const AttrValue& value) {
  struct Visitor {
    std::string operator()(int64_t v) const { return fmt::format("{}", v); }
    std::string operator()(double v) const { return FormatReal(v); }
    std::string operator()(const std::string& v) const { return QuoteText(v); }
    std::string operator()(const std::vector<int64_t>& v) const {
      return fmt::format("[{}]", fmt::join(v, ","));
    }
    std::string operator()(const std::vector<std::string>& v) const {
      if (v.empty()) return "strs[]";
      std::string text = "[";
      for (const std::string& item : v) text += (text.size() > 1 ? "," : "") + QuoteText(item);
      return text + "]";
    }
  };
  return std::visit(Visitor(), value);
}

std::string FormatIds(const std::vector<ValueId>& ids) {
  std::string text;
  for (ValueId id : ids) text += fmt::format("{}%{}", text.empty() ? "" : ", ", id.value());
  return text;
}

std::string FormatNode(const Graph& graph, const Node& node) {
  std::string text = fmt::format("{} = {}", FormatIds(node.outputs), OpName(node.op));
  if (!node.inputs.empty()) text += fmt::format("({})", FormatIds(node.inputs));
  if (!node.attrs.values().empty()) text += " " + FormatAttrs(node.attrs);
  if (node.layer != -1) text += fmt::format(" @layer{}", node.layer);
  if (node.phase == Phase::kBackward) text += " @backward";
  if (node.phase == Phase::kUpdate) text += " @update";
  std::string types;
  for (ValueId id : node.outputs) {
    const bool known = id.index() < graph.values.size();
    types +=
        fmt::format("{}{}", types.empty() ? "" : ", ", known ? graph.type(id).ToString() : "?");
  }
  return text + " : " + types;
}

Result<AttrValue> ParseNumber(Lexer& lexer) {
  const std::string_view text = lexer.NumberText();
  const char* end = text.data() + text.size();
  if (text.find_first_of(".ein") == std::string_view::npos) {
    int64_t value = 0;
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (text.empty() || error != std::errc() || stop != end) {
      return Fail(lexer.Error(fmt::format("'{}' is not an attribute value", text)));
    }
    return AttrValue(value);
  }
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) {
    return Fail(lexer.Error(fmt::format("'{}' is not a real number", text)));
  }
  return AttrValue(value);
}

Result<AttrValue> ParseStrings(Lexer& lexer) {
  std::vector<std::string> list;
  do {
    MW_ASSIGN_OR_RETURN(std::string item, lexer.String());
    list.push_back(std::move(item));
  } while (lexer.Take(","));
  MW_TRY(lexer.Expect("]"));
  return AttrValue(std::move(list));
}

Result<AttrValue> ParseValue(Lexer& lexer) {
  if (lexer.Take("strs[")) {
    MW_TRY(lexer.Expect("]"));
    return AttrValue(std::vector<std::string>());
  }
  if (lexer.Take("[")) {
    if (lexer.Take("]")) return AttrValue(std::vector<int64_t>());
    if (!lexer.PeekInt()) return ParseStrings(lexer);
    MW_ASSIGN_OR_RETURN(std::vector<int64_t> list, lexer.IntList());
    MW_TRY(lexer.Expect("]"));
    return AttrValue(std::move(list));
  }
  if (lexer.PeekQuote()) {
    MW_ASSIGN_OR_RETURN(std::string value, lexer.String());
    return AttrValue(std::move(value));
  }
  return ParseNumber(lexer);
}

Status ParsePlace(Lexer& lexer, Node& node) {
  while (lexer.Take("@")) {
    if (lexer.TakePrefix("layer")) {
      MW_ASSIGN_OR_RETURN(node.layer, lexer.Int32());
    } else if (lexer.Take("backward")) {
      node.phase = Phase::kBackward;
    } else if (lexer.Take("update")) {
      node.phase = Phase::kUpdate;
    } else {
      return lexer.Error("expected layer, backward or update");
    }
  }
  return OkStatus();
}

class GraphParser {
 public:
  explicit GraphParser(Lexer& lexer) : lexer_(lexer) {}

  Result<Graph> Run() {
    MW_TRY(lexer_.Expect("graph"));
    MW_ASSIGN_OR_RETURN(graph_.name, lexer_.String());
    MW_TRY(lexer_.Expect("{"));
    while (lexer_.PeekNumbered('%')) MW_TRY(ParseNode());
    while (lexer_.Take("output")) MW_TRY(ParseOutput());
    MW_TRY(lexer_.Expect("}"));
    return std::move(graph_);
  }

 private:
  Result<ValueId> DefinedId() {
    MW_ASSIGN_OR_RETURN(const int32_t id, lexer_.Numbered('%'));
    if (id < 0 || static_cast<size_t>(id) >= graph_.values.size()) {
      return Fail(lexer_.Error(fmt::format("%{} is not defined yet", id)));
    }
    return ValueId(id);
  }

  Status ParseNode() {
    Node node;
    const size_t first = graph_.values.size();
    do {
      MW_ASSIGN_OR_RETURN(const int32_t id, lexer_.Numbered('%'));
      const size_t expected = first + node.outputs.size();
      if (id < 0 || static_cast<size_t>(id) != expected) {
        return lexer_.Error(fmt::format("result %{} must be %{}: ids count up", id, expected));
      }
      node.outputs.emplace_back(id);
    } while (lexer_.Take(","));
    MW_TRY(lexer_.Expect("="));
    MW_ASSIGN_OR_RETURN(const std::string op, lexer_.Word());
    auto parsed = ParseOp(op);
    if (!parsed) return lexer_.Error(parsed.error().message());
    node.op = *parsed;
    if (lexer_.Take("(")) {
      do {
        MW_ASSIGN_OR_RETURN(const ValueId id, DefinedId());
        node.inputs.push_back(id);
      } while (lexer_.Take(","));
      MW_TRY(lexer_.Expect(")"));
    }
    MW_TRY(ParseAttrs(lexer_, node.attrs));
    MW_TRY(ParsePlace(lexer_, node));
    MW_TRY(lexer_.Expect(":"));
    const NodeId node_id(static_cast<int32_t>(graph_.nodes.size()));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (i > 0) MW_TRY(lexer_.Expect(","));
      MW_ASSIGN_OR_RETURN(TensorType type, lexer_.Type());
      graph_.values.push_back(Value{std::move(type), node_id});
    }
    graph_.nodes.push_back(std::move(node));
    return OkStatus();
  }

  Status ParseOutput() {
    MW_ASSIGN_OR_RETURN(std::string name, lexer_.String());
    if (!names_.insert(name).second) {
      return lexer_.Error(fmt::format("output \"{}\" is given twice", name));
    }
    MW_ASSIGN_OR_RETURN(const ValueId id, DefinedId());
    const Reduction reduction = lexer_.Take("mean") ? Reduction::kMean : Reduction::kSum;
    graph_.outputs.push_back(NamedValue{std::move(name), id, reduction});
    return OkStatus();
  }

  Lexer& lexer_;
  Graph graph_;
  std::set<std::string> names_;
};

}  // namespace

std::string FormatAttrs(const Attrs& attrs) {
  std::string list;
  for (const auto& [name, value] : attrs.values()) {
    list += fmt::format("{}{}={}", list.empty() ? "" : ", ", FormatName(name), FormatValue(value));
  }
  return list.empty() ? "" : fmt::format("{{{}}}", list);
}

Status ParseAttrs(Lexer& lexer, Attrs& attrs) {
  if (!lexer.Take("{")) return OkStatus();
  do {
    MW_ASSIGN_OR_RETURN(std::string name, lexer.Name());
    MW_TRY(lexer.Expect("="));
    MW_ASSIGN_OR_RETURN(AttrValue value, ParseValue(lexer));
    if (attrs.Has(name)) return lexer.Error(fmt::format("attribute '{}' is given twice", name));
    attrs.Set(std::move(name), std::move(value));
  } while (lexer.Take(","));
  return lexer.Expect("}");
}

std::string FormatGraphIndented(const Graph& graph, std::string_view indent) {
  std::string text = fmt::format("graph {} {{\n", QuoteText(graph.name));
  for (const Node& node : graph.nodes) {
    text += fmt::format("{}  {}\n", indent, FormatNode(graph, node));
  }
  for (const NamedValue& output : graph.outputs) {
    text += fmt::format("{}  output {} %{}{}\n", indent, QuoteText(output.name),
                        output.value.value(), output.reduction == Reduction::kMean ? " mean" : "");
  }
  return text + fmt::format("{}}}", indent);
}

Result<Graph> ParseGraphAt(Lexer& lexer) { return GraphParser(lexer).Run(); }

std::string FormatGraph(const Graph& graph) { return FormatGraphIndented(graph, "") + "\n"; }

Result<Graph> ParseGraph(std::string_view text) {
  Lexer lexer(text);
  MW_ASSIGN_OR_RETURN(Graph graph, ParseGraphAt(lexer));
  if (!lexer.AtEnd()) return Fail(lexer.Error("expected the end of the text"));
  return graph;
}

}  // namespace meshwright::ir
