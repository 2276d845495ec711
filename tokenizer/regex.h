// Regular expressions of tokenizer.json: Oniguruma's language, run by PCRE2.
//
// The pattern is rewritten when it is loaded: \s, \w and the general categories become what
// Oniguruma takes them for (tokenizer/unicode_tables.h), nested sets are joined, (?m) becomes (?s),
// ^ and $ look at lines. What has no equal in PCRE2 (&&, a complement within a set) is refused by
// name.
//
// Thread rule: immutable once made; each thread matches with memory of its own.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"

namespace meshwright::tokenizer {

// A part of a text, by bytes.
struct Span {
  size_t begin = 0;
  size_t end = 0;
  friend bool operator==(const Span&, const Span&) = default;
};

// A part of a text that a pattern matched, or that lies between two such.
struct Match {
  Span span;
  bool matched = false;
};

class Regex {
 public:
  // Errors: kInvalidArgument, with the pattern and the place in it.
  static Result<Regex> Compile(std::string_view pattern);
  // Matches exactly `text`.
  static Result<Regex> Literal(std::string_view text);

  // The matches in `text`, left to right, and what lies between them: together the whole text. An
  // empty match is left out where the last match ended. Errors: kResourceExhausted where the
  // pattern tries too many ways.
  Status FindAll(std::string_view text, std::vector<Match>& matches) const;

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  static Result<Regex> Make(const std::string& pattern, unsigned options, std::string_view shown);

  std::shared_ptr<const Code> code_;
};

// The pattern as PCRE2 is to read it. For tests.
Result<std::string> RewritePattern(std::string_view pattern);

}  // namespace meshwright::tokenizer
