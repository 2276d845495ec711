#include "ir/text_lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "ir/schema_table.h"

namespace meshwright::ir {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsWordStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsWordChar(char c) { return IsWordStart(c) || IsDigit(c) || c == '.'; }
bool IsNumberChar(char c) {
  return IsWordStart(c) || IsDigit(c) || c == '.' || c == '-' || c == '+';
}

int HexDigit(char c) {
  if (IsDigit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

void Lexer::SkipSpace() {
  while (position_ < text_.size() &&
         std::string_view(" \n\t\r").find(text_[position_]) != std::string_view::npos) {
    ++position_;
  }
}

bool Lexer::AtEnd() {
  SkipSpace();
  return position_ == text_.size();
}

bool Lexer::Take(std::string_view literal) {
  SkipSpace();
  if (text_.substr(position_, literal.size()) != literal) return false;
  const size_t end = position_ + literal.size();
  if (IsWordChar(literal.back()) && end < text_.size() && IsWordChar(text_[end])) return false;
  position_ = end;
  return true;
}

bool Lexer::PeekNumbered(char prefix) {
  SkipSpace();
  if (position_ + 1 >= text_.size() || text_[position_] != prefix) return false;
  const char next = text_[position_ + 1];
  return IsDigit(next) || next == '-';
}

bool Lexer::PeekInt() {
  SkipSpace();
  return position_ < text_.size() && (IsDigit(text_[position_]) || text_[position_] == '-');
}

bool Lexer::PeekQuote() {
  SkipSpace();
  return position_ < text_.size() && text_[position_] == '"';
}

bool Lexer::TakePrefix(std::string_view literal) {
  SkipSpace();
  if (text_.substr(position_, literal.size()) != literal) return false;
  position_ += literal.size();
  return true;
}

Status Lexer::Expect(std::string_view literal) {
  if (Take(literal)) return OkStatus();
  return Error(fmt::format("expected '{}'", literal));
}

Result<int64_t> Lexer::Int() {
  SkipSpace();
  int64_t value = 0;
  const char* end = text_.data() + text_.size();
  const auto [stop, error] = std::from_chars(text_.data() + position_, end, value);
  if (error != std::errc()) return Fail(Error("expected an integer of 64 bits"));
  position_ = static_cast<size_t>(stop - text_.data());
  return value;
}

Result<int32_t> Lexer::Int32() {
  MW_ASSIGN_OR_RETURN(const int64_t value, Int());
  if (value < INT32_MIN || value > INT32_MAX) return Fail(Error("the integer exceeds 32 bits"));
  return static_cast<int32_t>(value);
}

Result<std::string> Lexer::Word() {
  SkipSpace();
  if (position_ == text_.size() || !IsWordStart(text_[position_])) {
    return Fail(Error("expected a word"));
  }
  const size_t begin = position_;
  while (position_ < text_.size() && IsWordChar(text_[position_])) ++position_;
  return std::string(text_.substr(begin, position_ - begin));
}

Result<std::string> Lexer::String() {
  SkipSpace();
  if (position_ == text_.size() || text_[position_] != '"') return Fail(Error("expected a string"));
  std::string value;
  for (size_t i = position_ + 1; i < text_.size(); ++i) {
    const char c = text_[i];
    if (c == '"') {
      position_ = i + 1;
      return value;
    }
    if (c != '\\') {
      value += c;
      continue;
    }
    if (i + 1 < text_.size() && (text_[i + 1] == '"' || text_[i + 1] == '\\')) {
      value += text_[++i];
      continue;
    }
    const bool hex = i + 3 < text_.size() && text_[i + 1] == 'x';
    const int high = hex ? HexDigit(text_[i + 2]) : -1;
    const int low = hex ? HexDigit(text_[i + 3]) : -1;
    if (high < 0 || low < 0) {
      return Fail(Error("unknown escape in a string; use \\\", \\\\ or \\xhh"));
    }
    value += static_cast<char>(high * 16 + low);
    i += 3;
  }
  return Fail(Error("a string without end"));
}

Result<std::string> Lexer::Name() { return PeekQuote() ? String() : Word(); }

Result<int32_t> Lexer::Numbered(char prefix) {
  if (!PeekNumbered(prefix)) return Fail(Error(fmt::format("expected '{}' and a number", prefix)));
  ++position_;
  return Int32();
}

std::string_view Lexer::NumberText() {
  SkipSpace();
  const size_t begin = position_;
  while (position_ < text_.size() && IsNumberChar(text_[position_])) ++position_;
  return text_.substr(begin, position_ - begin);
}

Result<std::vector<int64_t>> Lexer::IntList() {
  std::vector<int64_t> values;
  if (!PeekInt()) return values;
  do {
    MW_ASSIGN_OR_RETURN(const int64_t value, Int());
    values.push_back(value);
  } while (Take(","));
  return values;
}

Result<TensorType> Lexer::Type() {
  MW_ASSIGN_OR_RETURN(const std::string name, Word());
  auto dtype = ParseDType(name);
  if (!dtype) return Fail(Error(dtype.error().message()));
  TensorType type{*dtype, {}};
  MW_TRY(Expect("["));
  MW_ASSIGN_OR_RETURN(type.dims, IntList());
  MW_TRY(Expect("]"));
  if (const Status status = CheckType(type); !status.ok()) return Fail(Error(status.message()));
  return type;
}

Status Lexer::Error(std::string_view message) const {
  constexpr size_t kShown = 24;
  const auto lines =
      std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(position_), '\n');
  std::string_view rest = text_.substr(position_, kShown);
  rest = rest.substr(0, rest.find('\n'));
  return InvalidArgument(fmt::format("line {}: {}, before '{}'", lines + 1, message, rest));
}

std::string QuoteText(std::string_view text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      quoted += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string FormatName(std::string_view name) {
  const bool word =
      !name.empty() && IsWordStart(name[0]) && std::all_of(name.begin(), name.end(), IsWordChar);
  return word ? std::string(name) : QuoteText(name);
}

std::string FormatReal(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".ein") == std::string::npos) text += ".0";
  return text;
}

}  // namespace meshwright::ir
