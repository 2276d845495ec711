// What a text goes through before it is cut: the "normalizer" of tokenizer.json.
//
// One class per type, in normalizer.cc and charsmap.cc; equal to those of `tokenizers` on every
// character, also where that library is behind Unicode.
//
// Thread rule: immutable; any thread.
#pragma once

#include <memory>

#include "base/result.h"
#include "tokenizer/json.h"
#include "tokenizer/text.h"

namespace meshwright::tokenizer {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // Errors: a pattern that gives up.
  virtual Status Apply(Text& text) const = 0;
};

// Errors: kInvalidArgument, with the path of what is unknown, missing or of another kind.
Result<std::shared_ptr<const Normalizer>> LoadNormalizer(const JsonNode& node);

// SentencePiece's table of replacements ("Precompiled"), from its bytes (charsmap.cc).
Result<std::shared_ptr<const Normalizer>> MakeCharsmap(const JsonNode& node);

// What Replace, in normalizers and decoders, does with `pattern` in `text`.
Status ReplaceAll(const Regex& pattern, std::string_view content, Text& text);
// The member "pattern": {"String": ..} or {"Regex": ..}.
Result<Regex> LoadPattern(const JsonNode& node);

}  // namespace meshwright::tokenizer
