#include "tokenizer/template_lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tokenizer/template_text.h"
#include "tokenizer/unicode.h"

namespace meshwright::tokenizer {
namespace {

using Kind = TemplateTokenKind;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool BeginsName(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

// Longer ones first.
constexpr std::array<std::string_view, 28> kOperators = {
    "==", "!=", ">=", "<=", "//", "**", "+", "-", "*", "/", "%", "~", "[", "]",
    "(",  ")",  "{",  "}",  ">",  "<",  "=", ".", ":", "|", ",", ";", "!", "@"};

// The value of a quoted text: Python's escapes.
class Unescaper {
 public:
  explicit Unescaper(std::string_view text) : text_(text) {}

  Result<std::string> Run() {
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c != '\\' || at_ == text_.size()) {
        out_ += c;
      } else {
        MW_TRY(Escape(text_[at_++]));
      }
    }
    return std::move(out_);
  }

 private:
  Status Escape(char c) {
    constexpr std::string_view kLetters = "abfnrtv\\'\"";
    constexpr std::string_view kValues = "\a\b\f\n\r\t\v\\'\"";
    if (const size_t known = kLetters.find(c); known != kLetters.npos) {
      out_ += kValues[known];
      return OkStatus();
    }
    if (c == '\n') return OkStatus();
    if (c == 'x') return Code(2, 16);
    if (c == 'u') return Code(4, 16);
    if (c == 'U') return Code(8, 16);
    if (c == 'N') return InvalidArgument("\\N{..} in a text is not executed");
    if (c >= '0' && c <= '7') {
      --at_;
      return Code(3, 8);
    }
    out_ += '\\';
    out_ += c;
    return OkStatus();
  }

  // A character by its number; octal ones may be shorter than `digits`.
  Status Code(size_t digits, uint32_t base) {
    uint32_t code = 0;
    size_t read = 0;
    for (; read < digits && at_ < text_.size(); ++read, ++at_) {
      const char c = text_[at_];
      const uint32_t digit = IsDigit(c)             ? static_cast<uint32_t>(c - '0')
                             : c >= 'a' && c <= 'f' ? static_cast<uint32_t>(c - 'a' + 10)
                             : c >= 'A' && c <= 'F' ? static_cast<uint32_t>(c - 'A' + 10)
                                                    : 99;
      if (digit >= base) break;
      code = code * base + digit;
    }
    if (read == 0 || (base == 16 && read < digits)) {
      return InvalidArgument("an escape in a text has too few digits");
    }
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
      return InvalidArgument(fmt::format("\\u{:x} in a text is no character", code));
    }
    AppendUtf8(code, out_);
    return OkStatus();
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string out_;
};

// Where a tag that begins here closes, if it has nothing but `name`; 0: it is no such tag.
size_t TagEnd(std::string_view all, size_t at, std::string_view name) {
  const auto skip = [&] {
    while (at < all.size() && (all[at] == ' ' || all[at] == '\n' || all[at] == '\t')) ++at;
  };
  skip();
  if (!all.substr(at).starts_with(name)) return 0;
  at += name.size();
  skip();
  if (at < all.size() && (all[at] == '-' || all[at] == '+')) ++at;
  return all.substr(at).starts_with("%}") ? at + 2 : 0;
}

// Where the number that begins at `at` ends, and whether it is a real one.
size_t NumberEnd(std::string_view text, size_t at, bool& real) {
  size_t end = at;
  const auto digits = [&] {
    while (end < text.size() && (IsDigit(text[end]) || text[end] == '_')) ++end;
  };
  digits();
  if (end + 1 < text.size() && text[end] == '.' && IsDigit(text[end + 1])) {
    real = true;
    ++end;
    digits();
  }
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    size_t power = end + 1;
    if (power < text.size() && (text[power] == '+' || text[power] == '-')) ++power;
    if (power < text.size() && IsDigit(text[power])) {
      real = true;
      end = power;
      digits();
    }
  }
  return end;
}

class Lexer {
 public:
  explicit Lexer(std::string text) : text_(std::move(text)) {}

  Result<std::vector<TemplateToken>> Run() {
    while (at_ < text_.size()) {
      const Status status = OneTag();
      if (!status.ok()) return Fail(status.WithContext(fmt::format("line {}", line_)));
    }
    Push(Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view Rest() const { return std::string_view(text_).substr(at_); }
  bool Sees(std::string_view what) const { return Rest().starts_with(what); }

  void Push(Kind kind, std::string_view text) {
    tokens_.push_back({kind, std::string(text), line_});
  }
  void Advance(size_t bytes) {
    const std::string_view passed = Rest().substr(0, bytes);
    line_ += static_cast<int>(std::count(passed.begin(), passed.end(), '\n'));
    if (!passed.empty()) line_begins_ = passed.back() == '\n';
    at_ += passed.size();
  }

  // Text up to the next tag, and the tag.
  Status OneTag() {
    size_t open = at_;
    for (;; ++open) {
      open = text_.find('{', open);
      if (open == text_.npos || open + 1 == text_.size()) open = text_.npos;
      if (open == text_.npos) break;
      const char next = text_[open + 1];
      if (next == '{' || next == '%' || next == '#') break;
    }
    if (open == text_.npos) {
      Push(Kind::kData, Rest());
      Advance(Rest().size());
      return OkStatus();
    }
    const char kind = text_[open + 1];
    const char sign = open + 2 < text_.size() ? text_[open + 2] : '\0';
    std::string_view data = std::string_view(text_).substr(at_, open - at_);
    if (sign == '-') {
      data = Stripped(data, StripEnds::kRight);
    } else if (sign != '+' && kind != '{') {
      data = WithoutIndent(data);
    }
    if (!data.empty()) Push(Kind::kData, data);
    Advance(open - at_);
    const size_t begin = sign == '-' || (sign == '+' && kind != '{') ? 3 : 2;
    Advance(begin);
    if (kind == '#') return Comment();
    if (kind == '%' && IsRaw()) return Raw();
    Push(Kind::kOpen, kind == '{' ? "{{" : "{%");
    return Inside(kind == '{' ? "}}" : "%}");
  }

  // The spaces between the beginning of a line and a block are not the text's.
  std::string_view WithoutIndent(std::string_view data) const {
    const size_t newline = data.rfind('\n');
    const size_t begin = newline == data.npos ? 0 : newline + 1;
    if (begin == 0 && !line_begins_) return data;
    return Stripped(data.substr(begin), StripEnds::kBoth).empty() ? data.substr(0, begin) : data;
  }

  // Behind the end of a tag: "-" takes all spaces, a block takes one newline.
  void AfterTag(bool minus, bool block) {
    if (minus) {
      Advance(Rest().size() - Stripped(Rest(), StripEnds::kLeft).size());
    } else if (block && Sees("\n")) {
      Advance(1);
    }
  }

  Status Comment() {
    const size_t end = text_.find("#}", at_);
    if (end == text_.npos) return InvalidArgument("a comment is not closed");
    const char sign = end > at_ ? text_[end - 1] : '\0';
    Advance(end + 2 - at_);
    AfterTag(sign == '-', sign != '+');
    return OkStatus();
  }

  bool IsRaw() const { return TagEnd(text_, at_, "raw") != 0; }

  // What stands between {% raw %} and {% endraw %} is text.
  Status Raw() {
    const size_t begin = TagEnd(text_, at_, "raw");
    const bool minus = text_[begin - 3] == '-';
    Advance(begin - at_);
    AfterTag(minus, true);
    for (size_t open = text_.find("{%", at_); open != text_.npos;
         open = text_.find("{%", open + 2)) {
      const char sign = open + 2 < text_.size() ? text_[open + 2] : '\0';
      const size_t end = TagEnd(text_, open + (sign == '-' || sign == '+' ? 3 : 2), "endraw");
      if (end == 0) continue;
      std::string_view data = std::string_view(text_).substr(at_, open - at_);
      if (sign == '-') data = Stripped(data, StripEnds::kRight);
      if (sign != '-' && sign != '+') data = WithoutIndent(data);
      if (!data.empty()) Push(Kind::kData, data);
      const bool end_minus = text_[end - 3] == '-';
      Advance(end - at_);
      AfterTag(end_minus, true);
      return OkStatus();
    }
    return InvalidArgument("{% raw %} is not closed");
  }

  Status Inside(std::string_view close) {
    std::string open_brackets;
    for (;;) {
      Advance(Rest().size() - Stripped(Rest(), StripEnds::kLeft).size());
      if (at_ >= text_.size()) {
        return InvalidArgument(fmt::format("a tag is not closed by {}", close));
      }
      const bool minus = Sees("-") && Rest().substr(1).starts_with(close);
      const bool plus = close == "%}" && Sees("+%}");
      if (open_brackets.empty() && (minus || plus || Sees(close))) {
        Push(Kind::kClose, close);
        Advance(close.size() + (minus || plus ? 1 : 0));
        AfterTag(minus, close == "%}" && !plus);
        return OkStatus();
      }
      MW_TRY(OneToken(open_brackets));
    }
  }

  Status OneToken(std::string& open_brackets) {
    const char c = text_[at_];
    if (BeginsName(c)) return Name();
    if (IsDigit(c)) return Number();
    if (c == '"' || c == '\'') return Quoted(c);
    for (const std::string_view op : kOperators) {
      if (!Sees(op) || op == "!" || op == "@") continue;
      if (op == "(" || op == "[" || op == "{") open_brackets += op[0];
      if (op == ")" || op == "]" || op == "}") {
        const char wanted = op == ")" ? '(' : op == "]" ? '[' : '{';
        if (open_brackets.empty() || open_brackets.back() != wanted) {
          return InvalidArgument(fmt::format("'{}' closes nothing", op));
        }
        open_brackets.pop_back();
      }
      Push(Kind::kOperator, op);
      Advance(op.size());
      return OkStatus();
    }
    return InvalidArgument(fmt::format("unexpected '{}'", Rest().substr(0, CharacterBytes(c))));
  }

  Status Name() {
    size_t end = at_;
    while (end < text_.size() && (BeginsName(text_[end]) || IsDigit(text_[end]))) ++end;
    Push(Kind::kName, Rest().substr(0, end - at_));
    Advance(end - at_);
    return OkStatus();
  }

  Status Number() {
    bool real = false;
    const size_t end = NumberEnd(text_, at_, real);
    std::string number(Rest().substr(0, end - at_));
    std::erase(number, '_');
    if (end < text_.size() && BeginsName(text_[end])) {
      return InvalidArgument(fmt::format("'{}{}' is no number", number, text_[end]));
    }
    Push(real ? Kind::kReal : Kind::kInteger, number);
    Advance(end - at_);
    return OkStatus();
  }

  Status Quoted(char quote) {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) return InvalidArgument("a text is not closed");
    MW_ASSIGN_OR_RETURN(const std::string value, Unescaper(Rest().substr(1, end - at_ - 1)).Run());
    Push(Kind::kString, value);
    Advance(end + 1 - at_);
    return OkStatus();
  }

  const std::string text_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_begins_ = true;  // what was read last ended a line
  std::vector<TemplateToken> tokens_;
};

// Lines end with "\n", and the last line of a template with nothing.
std::string WithPlainNewlines(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      out += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    } else {
      out += text[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

}  // namespace

Result<std::vector<TemplateToken>> LexTemplate(std::string_view text) {
  if (const size_t wrong = FindInvalidUtf8(text); wrong != text.size()) {
    return Fail(InvalidArgument(fmt::format("the template is not UTF-8 at byte {}", wrong)));
  }
  return Lexer(WithPlainNewlines(text)).Run();
}

}  // namespace meshwright::tokenizer
