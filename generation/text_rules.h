// What a text may not become: rules that take tokens away before one is chosen, as a model's
// generation_config.json names them.
//
// They are applied in the order of Hugging Face's `generate`, behind the penalty of repetitions and
// before the temperature: no_repeat_ngram_size -> bad_words_ids -> min_length ->
// forced_bos_token_id
// -> forced_eos_token_id -> suppress_tokens -> begin_suppress_tokens. Each is a function of the
// text alone, so a text is the same whatever is written beside it. Thread rule: pure functions.
// Source: transformers, generation/logits_process.py.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

namespace meshwright::generation {

struct TextRules {
  int64_t no_repeat_ngram = 0;  // so many tokens in a row are in a text once; 0: no rule
  std::vector<std::vector<int32_t>> bad_words;  // rows of tokens that no text has
  int64_t min_length = 0;                       // of a text with its prompt, before it may end
  std::optional<int64_t> min_new_tokens = {};   // behind the prompt; counts before min_length
  std::optional<int32_t> forced_bos = {};       // behind a prompt of one token
  std::set<int32_t> forced_eos = {};        // one of them is the last token that there is room for
  std::set<int32_t> suppressed = {};        // never
  std::set<int32_t> begin_suppressed = {};  // not as the first token that is chosen
  // The scores of beams are probabilities of what the rules leave.
  bool renormalises = false;
};

// The rules for one text.
class RulesOfText {
 public:
  RulesOfText() = default;
  // prompt: its tokens; longest: how many may follow; stops: the tokens that end the text.
  RulesOfText(TextRules rules, int64_t prompt, int64_t longest, std::set<int32_t> stops);

  // Whether a text of so many tokens, the prompt included, may lose a token.
  bool ActAt(int64_t length) const;
  // What may not follow on `text` becomes -inf: perhaps all.
  void Apply(std::span<const int32_t> text, std::vector<double>& logits) const;

 private:
  TextRules rules_;
  std::set<int32_t> stops_;
  int64_t least_ = 0;  // tokens of a text that may end
  int64_t begin_ = 0;  // tokens of a text whose next is its first; the forced one is none
  int64_t last_ = -1;  // tokens of a text that has room for one
};

}  // namespace meshwright::generation
