// Sets of characters as Hugging Face's `tokenizers` has them, measured (tools/hf_check).
//
// The components of that library have their tables from several versions of Unicode. What a
// tokenizer was trained with counts, not what is newest, so each set is the one that its component
// uses. Sets named kNewer... are what Oniguruma's property has more than PCRE2's of Unicode 14.
//
// Thread rule: constants. Ranges are in order and do not meet.
#pragma once

#include <cstdint>
#include <span>

namespace meshwright::tokenizer {

struct CodeRange {
  char32_t first;
  char32_t last;
};
struct CodePair {
  char32_t from;
  char32_t to;
};
struct ScriptRange {
  char32_t first;
  char32_t last;
  int32_t script;
};

extern const std::span<const CodeRange> kPunctuation;   // of Punctuation and BertPreTokenizer
extern const std::span<const CodeRange> kNumeric;       // of Digits
extern const std::span<const CodeRange> kBertRemoved;   // by clean_text
extern const std::span<const CodeRange> kAccents;       // of StripAccents
extern const std::span<const CodeRange> kBertAccents;   // of BertNormalizer
extern const std::span<const CodeRange> kIdeographs;    // of BertNormalizer
extern const std::span<const CodeRange> kWord;          // \w of Rust's regex
extern const std::span<const CodeRange> kUndecomposed;  // that only utf8proc knows
extern const std::span<const CodeRange> kNewerL;
extern const std::span<const CodeRange> kNewerLu;
extern const std::span<const CodeRange> kNewerLl;
extern const std::span<const CodeRange> kNewerLm;
extern const std::span<const CodeRange> kNewerLo;
extern const std::span<const CodeRange> kNewerM;
extern const std::span<const CodeRange> kNewerMn;
extern const std::span<const CodeRange> kNewerMc;
extern const std::span<const CodeRange> kNewerN;
extern const std::span<const CodeRange> kNewerNd;
extern const std::span<const CodeRange> kNewerNo;
extern const std::span<const CodeRange> kNewerP;
extern const std::span<const CodeRange> kNewerPo;
extern const std::span<const CodeRange> kNewerS;
extern const std::span<const CodeRange> kNewerSo;
extern const std::span<const CodeRange> kNewerSm;
extern const std::span<const CodeRange> kNewerWord;  // beside [\p{Alphabetic}\p{M}\p{Nd}\p{Pc}]
extern const std::span<const CodePair> kLower;       // where utf8proc says another lower case
extern const std::span<const ScriptRange> kScripts;  // of UnicodeScripts

}  // namespace meshwright::tokenizer
