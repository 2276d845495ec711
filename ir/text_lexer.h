// Lexer of the text forms: reads words, numbers and strings left to right and says the line of an
// error. Internal to ir/.
//
// Safe on any input: it never reads past the end, never recurses and never allocates more than the
// text's size. Thread rule: one thread. Ownership: the text must outlive the lexer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"

namespace meshwright::ir {

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  bool AtEnd();
  // Consumes the literal when it comes next. Words end at a character that cannot be part of a
  // word.
  bool Take(std::string_view literal);
  // Whether `prefix` comes next, directly followed by an integer ("s7", "c-1").
  bool PeekNumbered(char prefix);
  bool PeekInt();
  bool PeekQuote();
  // Consumes the literal even when a word goes on behind it ("layer" of "layer3").
  bool TakePrefix(std::string_view literal);

  Status Expect(std::string_view literal);
  Result<int64_t> Int();
  Result<int32_t> Int32();
  Result<std::string> Word();    // [A-Za-z_][A-Za-z0-9_.]*
  Result<std::string> String();  // quoted
  Result<std::string> Name();    // word or quoted
  // An integer directly behind the prefix: Numbered('s') reads "s7" as 7.
  Result<int32_t> Numbered(char prefix);
  // The characters of a number: digits, signs, '.', letters.
  std::string_view NumberText();
  // "1,2,3" up to a character that does not continue the list; may be empty.
  Result<std::vector<int64_t>> IntList();
  Result<TensorType> Type();  // f32[8,128]; dims and bytes checked

  // "line 12: message, before '...'"
  Status Error(std::string_view message) const;

 private:
  void SkipSpace();

  std::string_view text_;
  size_t position_ = 0;
};

// The quoted form that Lexer::String reads back.
std::string QuoteText(std::string_view text);
// The name as a word when it is one, else quoted.
std::string FormatName(std::string_view name);
// Shortest form that reads back equal and shows that it is a real.
std::string FormatReal(double value);

// "{eps=1e-05, name=\"x\"}", empty for none; reads such a list when one comes next.
std::string FormatAttrs(const Attrs& attrs);
Status ParseAttrs(Lexer& lexer, Attrs& attrs);

// A graph at the lexer's position; the same for a nested one.
Result<Graph> ParseGraphAt(Lexer& lexer);
// Text of a graph whose lines behind the first start with `indent`; no newline at the end.
std::string FormatGraphIndented(const Graph& graph, std::string_view indent);

}  // namespace meshwright::ir
