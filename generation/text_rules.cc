#include "generation/text_rules.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace meshwright::generation {
namespace {

constexpr double kGone = -std::numeric_limits<double>::infinity();

void Bar(int32_t token, std::vector<double>& logits) {
  if (token < 0 || static_cast<size_t>(token) >= logits.size()) return;
  logits[static_cast<size_t>(token)] = kGone;
}

void Bar(const std::set<int32_t>& tokens, std::vector<double>& logits) {
  for (const int32_t token : tokens) Bar(token, logits);
}

// Only these are left, each as likely as the other.
void Force(const std::set<int32_t>& tokens, std::vector<double>& logits) {
  std::fill(logits.begin(), logits.end(), kGone);
  for (const int32_t token : tokens) {
    if (static_cast<size_t>(token) < logits.size()) logits[static_cast<size_t>(token)] = 0;
  }
}

// Tokens that would make the last `size` tokens a row that the text has already.
void BarRepeats(std::span<const int32_t> text, int64_t size, std::vector<double>& logits) {
  const auto tokens = static_cast<size_t>(size);
  if (size == 0 || text.size() < tokens) return;
  const std::span<const int32_t> end = text.last(tokens - 1);
  for (size_t begin = 0; begin + tokens <= text.size(); ++begin) {
    const std::span<const int32_t> row = text.subspan(begin, tokens);
    if (std::equal(end.begin(), end.end(), row.begin())) Bar(row.back(), logits);
  }
}

void BarWord(std::span<const int32_t> text, std::span<const int32_t> word,
             std::vector<double>& logits) {
  const std::span<const int32_t> before = word.first(word.size() - 1);
  if (before.size() > text.size()) return;
  const std::span<const int32_t> end = text.last(before.size());
  if (std::equal(end.begin(), end.end(), before.begin())) Bar(word.back(), logits);
}

}  // namespace

RulesOfText::RulesOfText(TextRules rules, int64_t prompt, int64_t longest, std::set<int32_t> stops)
    : rules_(std::move(rules)),
      stops_(std::move(stops)),
      begin_(prompt),
      last_(prompt + longest - 1) {
  // An end of a text is no bad word.
  std::erase_if(rules_.bad_words, [&](const std::vector<int32_t>& word) {
    return word.empty() || (word.size() == 1 && stops_.contains(word[0]));
  });
  least_ = rules_.min_new_tokens ? prompt + *rules_.min_new_tokens : rules_.min_length;
  if (prompt == 1 && rules_.forced_bos) ++begin_;
}

bool RulesOfText::ActAt(int64_t length) const {
  return rules_.no_repeat_ngram > 0 || !rules_.bad_words.empty() || !rules_.suppressed.empty() ||
         (length < least_ && !stops_.empty()) || (length == 1 && rules_.forced_bos) ||
         (length == last_ && !rules_.forced_eos.empty()) ||
         (length == begin_ && !rules_.begin_suppressed.empty());
}

void RulesOfText::Apply(std::span<const int32_t> text, std::vector<double>& logits) const {
  const auto length = static_cast<int64_t>(text.size());
  if (!ActAt(length)) return;
  BarRepeats(text, rules_.no_repeat_ngram, logits);
  for (const std::vector<int32_t>& word : rules_.bad_words) BarWord(text, word, logits);
  if (length < least_) Bar(stops_, logits);
  if (length == 1 && rules_.forced_bos) Force({*rules_.forced_bos}, logits);
  if (length == last_ && !rules_.forced_eos.empty()) Force(rules_.forced_eos, logits);
  Bar(rules_.suppressed, logits);
  if (length == begin_) Bar(rules_.begin_suppressed, logits);
}

}  // namespace meshwright::generation
