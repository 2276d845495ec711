// What SentencePiece makes of a text before it is cut: replacements, spaces written as U+2581.
//
// Thread rule: immutable; any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tokenizer/prefix_tree.h"
#include "tokenizer/sentencepiece_file.h"

namespace meshwright::tokenizer {

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

class SentencePieceNormalizer {
 public:
  explicit SentencePieceNormalizer(std::shared_ptr<const SentencePieceFile> file);

  struct Options {
    bool prefix = true;  // a space before the text, where the file wants one
  };
  // `text` is UTF-8. Nothing is left of a text of spaces where those are removed.
  std::string Apply(std::string_view text, Options options) const;

  // Bytes of the longest user-defined piece that `text` begins with; 0: none.
  size_t UserDefinedAt(std::string_view text) const;

 private:
  struct Step {
    std::string_view text;
    size_t read = 0;
  };
  Step Next(std::string_view input) const;

  const std::shared_ptr<const SentencePieceFile> file_;
  PrefixTree user_defined_;
};

}  // namespace meshwright::tokenizer
