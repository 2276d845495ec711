#include "tests/tidy/scopes.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "base/text.h"

namespace meshwright::tidy {
namespace {

bool IsWord(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), IsWordChar);
}

// Words and single signs of a head; "::" and "->" are one sign each.
std::vector<std::string> Tokens(std::string_view head) {
  std::vector<std::string> tokens;
  for (size_t at = 0; at < head.size();) {
    size_t end = at + 1;
    if (IsWordChar(head[at])) {
      while (end < head.size() && IsWordChar(head[end])) ++end;
    } else if (head.substr(at, 2) == "::" || head.substr(at, 2) == "->") {
      end = at + 2;
    }
    if (head[at] != ' ') tokens.emplace_back(head.substr(at, end - at));
    at = end;
  }
  return tokens;
}

// The token behind the bracket that closes the one at `open`; of "<" only as brackets of templates.
size_t BehindBracket(const std::vector<std::string>& tokens, size_t open) {
  const std::string closing = tokens[open] == "<" ? ">" : ")";
  int depth = 0;
  for (size_t i = open; i < tokens.size(); ++i) {
    depth += tokens[i] == tokens[open] ? 1 : 0;
    depth -= tokens[i] == closing ? 1 : 0;
    if (depth == 0) return i + 1;
  }
  return tokens.size();
}

// A head without `template <...>`, `alignas(...)`, access labels and macros in front of a name.
std::vector<std::string> StripPrefixes(std::vector<std::string> tokens) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool bracket = i + 1 < tokens.size();
    if (tokens[i] == "template" && bracket && tokens[i + 1] == "<") {
      i = BehindBracket(tokens, i + 1) - 1;
    } else if ((tokens[i] == "alignas" || tokens[i].rfind("MW_", 0) == 0) && bracket &&
               tokens[i + 1] == "(") {
      i = BehindBracket(tokens, i + 1) - 1;
    } else if ((tokens[i] == "public" || tokens[i] == "private" || tokens[i] == "protected") &&
               kept.empty() && bracket && tokens[i + 1] == ":") {
      ++i;
    } else {
      kept.push_back(tokens[i]);
    }
  }
  return kept;
}

// Where the "(" of the parameters stands: the first one behind a name, outside of <...>.
std::optional<size_t> ParametersOf(const std::vector<std::string>& tokens) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] == "operator") {
      while (i + 1 < tokens.size() && tokens[i + 1] != "(") ++i;
      if (i + 2 < tokens.size() && tokens[i + 1] == "(" && tokens[i + 2] == ")") i += 2;
      return i + 1 < tokens.size() ? std::optional(i + 1) : std::nullopt;
    }
    if (tokens[i] == "=") return std::nullopt;
    if (tokens[i] == "<") {
      i = BehindBracket(tokens, i) - 1;
    } else if (tokens[i] == "(" && i > 0 && tokens[i - 1] == "decltype") {
      i = BehindBracket(tokens, i) - 1;
    } else if (tokens[i] == "(" && i > 0 && (IsWord(tokens[i - 1]) || tokens[i - 1] == ">")) {
      return i;
    }
  }
  return std::nullopt;
}

struct Named {
  std::string name;
  std::string owner;
};

// The name in front of the parameters; its qualification is the owner.
Named NameBefore(const std::vector<std::string>& tokens, size_t parameters) {
  for (size_t i = 0; i < parameters; ++i) {
    if (tokens[i] == "operator") return {"operator", ""};
  }
  Named named;
  size_t at = parameters - 1;
  named.name = tokens[at];
  if (at > 0 && tokens[at - 1] == "~") named.name = "~" + tokens[--at + 1];
  while (at >= 2 && tokens[at - 1] == "::" && IsWord(tokens[at - 2])) {
    at -= 2;
    named.owner = named.owner.empty() ? tokens[at] : tokens[at] + "::" + named.owner;
  }
  return named;
}

bool IsClassKey(const std::string& token) {
  return token == "class" || token == "struct" || token == "union";
}

// The name of the class whose head this is: the words in front of a base list or the end.
std::string ClassName(const std::vector<std::string>& tokens) {
  std::string name;
  for (size_t i = 1; i < tokens.size() && tokens[i] != ":" && tokens[i] != "final"; ++i) {
    if (tokens[i] == "<") {
      i = BehindBracket(tokens, i) - 1;
    } else {
      name += tokens[i];
    }
  }
  return name;
}

enum class Kind { kNamespace, kClass, kFunction, kInitializer };

struct Open {
  Kind kind = Kind::kNamespace;
  size_t index = 0;  // into functions or classes
  std::string name;  // of a class
  std::string head;  // what was written before an initializer
};

class Finder {
 public:
  explicit Finder(const SourceFile& file) : file_(file) {}

  Scopes Run() {
    for (line_ = 0; line_ < file_.code_lines.size(); ++line_) {
      const std::string& code = file_.code_lines[line_];
      const std::string_view trimmed = Trim(code);
      if (directive_ || (!trimmed.empty() && trimmed[0] == '#')) {
        if (!directive_) Directive(Trim(trimmed.substr(1)));
        directive_ = !trimmed.empty() && trimmed.back() == '\\';
        continue;
      }
      for (const char c : code) Take(c);
      Take(' ');
    }
    return std::move(scopes_);
  }

 private:
  struct Branch {
    std::vector<Open> open;
    std::string head;
    int depth = 0;
  };

  void Directive(std::string_view text) {
    if (text.rfind("if", 0) == 0) {
      branches_.push_back({open_, head_, depth_});
    } else if (text.rfind("el", 0) == 0 && !branches_.empty()) {
      open_ = branches_.back().open;
      head_ = branches_.back().head;
      depth_ = branches_.back().depth;
    } else if (text.rfind("endif", 0) == 0 && !branches_.empty()) {
      branches_.pop_back();
    }
  }

  bool Inside(Kind kind) const { return !open_.empty() && open_.back().kind == kind; }

  void Take(char c) {
    // Inside functions, initializers and parentheses only braces matter.
    if (Inside(Kind::kFunction) || Inside(Kind::kInitializer)) {
      if (c == '{') open_.push_back({open_.back().kind, npos, "", ""});
      if (c == '}') Close();
      return;
    }
    if (c == '(') ++depth_;
    if (c == ')') --depth_;
    if (depth_ > 0 && (c == '{' || c == '}')) return;
    if (depth_ == 0 && c == '{') return OpenBrace();
    if (depth_ == 0 && c == '}') return Close();
    if (depth_ == 0 && c == ';') return EndStatement();
    head_ += c;
  }

  std::string OuterClass() const { return Inside(Kind::kClass) ? open_.back().name : ""; }

  // Whether the brace behind `head` holds the value of a member: "a = {" and "F() : a_{".
  static bool OpensInitializer(const std::vector<std::string>& tokens,
                               std::optional<size_t> parameters) {
    if (tokens.empty()) return true;
    if (!parameters.has_value()) return true;
    const size_t behind = BehindBracket(tokens, *parameters);
    const auto colon =
        std::find(tokens.begin() + static_cast<ptrdiff_t>(behind), tokens.end(), ":");
    return colon != tokens.end() && (IsWord(tokens.back()) || tokens.back() == ">");
  }

  void OpenBrace() {
    const std::vector<std::string> tokens = StripPrefixes(Tokens(head_));
    const int line = static_cast<int>(line_) + 1;
    const auto holds = [&](std::string_view word) {
      return std::find(tokens.begin(), tokens.end(), word) != tokens.end();
    };
    const std::optional<size_t> parameters = ParametersOf(tokens);
    Open open;
    if (holds("namespace") || (!tokens.empty() && tokens[0] == "extern" && !parameters)) {
      open.kind = Kind::kNamespace;
    } else if (!tokens.empty() && IsClassKey(tokens[0]) && !parameters && !holds("=")) {
      const std::string outer = OuterClass();
      open.kind = Kind::kClass;
      open.index = scopes_.classes.size();
      open.name = outer.empty() ? ClassName(tokens) : outer + "::" + ClassName(tokens);
      scopes_.classes.push_back({open.name, line, line, 0});
    } else if (OpensInitializer(tokens, parameters)) {
      open.kind = Kind::kInitializer;
      open.head = head_;
    } else {
      open.kind = Kind::kFunction;
      open.index = scopes_.functions.size();
      Named named = NameBefore(tokens, *parameters);
      CountMethod(tokens, named);
      const bool outside = !named.owner.empty();
      if (!outside) named.owner = OuterClass();
      scopes_.functions.push_back({named.name, named.owner, line, line, outside});
    }
    open_.push_back(open);
    head_.clear();
  }

  void Close() {
    if (open_.empty()) return;  // a branch of an #if that closes more than it opens
    const Open closed = open_.back();
    open_.pop_back();
    const int line = static_cast<int>(line_) + 1;
    if (closed.index == npos) return;
    if (closed.kind == Kind::kFunction) scopes_.functions[closed.index].last = line;
    if (closed.kind == Kind::kClass) scopes_.classes[closed.index].last = line;
    // The head goes on behind an initializer: "F() : a_{1}, b_(2) {".
    head_ = closed.kind == Kind::kInitializer ? closed.head + " )" : "";
    if (closed.kind == Kind::kInitializer && closed.head.find('(') == std::string::npos) {
      head_ = closed.head + " =";
    }
  }

  void EndStatement() {
    const std::vector<std::string> tokens = StripPrefixes(Tokens(head_));
    head_.clear();
    if (!Inside(Kind::kClass)) return;
    const std::optional<size_t> parameters = ParametersOf(tokens);
    if (parameters.has_value()) CountMethod(tokens, NameBefore(tokens, *parameters));
  }

  void CountMethod(const std::vector<std::string>& tokens, const Named& named) {
    if (!Inside(Kind::kClass)) return;
    static const std::array<std::string_view, 5> others = {"friend", "using", "typedef",
                                                           "static_assert", "enum"};
    if (std::find(others.begin(), others.end(), tokens[0]) != others.end()) return;
    if (tokens.back() == "default" || tokens.back() == "delete") return;
    const std::string& own = open_.back().name;
    const size_t colons = own.rfind("::");
    const std::string simple = colons == std::string::npos ? own : own.substr(colons + 2);
    if (named.name == simple || named.name == "~" + simple) return;
    ++scopes_.classes[open_.back().index].methods;
  }

  static constexpr size_t npos = static_cast<size_t>(-1);

  const SourceFile& file_;
  Scopes scopes_;
  std::vector<Open> open_;
  std::vector<Branch> branches_;
  std::string head_;
  size_t line_ = 0;
  int depth_ = 0;
  bool directive_ = false;
};

}  // namespace

Scopes FindScopes(const SourceFile& file) { return Finder(file).Run(); }

}  // namespace meshwright::tidy
