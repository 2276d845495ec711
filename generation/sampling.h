// From the logits behind a text to its next token, in the order of Hugging Face's `generate`.
//
// repetition_penalty -> rules of the text (generation/text_rules.h) -> [only where tokens are
// drawn: temperature -> top_k -> top_p -> min_p -> softmax -> draw]. Other programs have other
// orders, and so other distributions by the same numbers. The draw is a pure function of (seed,
// request, position): a request gets the same tokens whatever runs beside it, and on every layout.
// Thread rule: pure functions. Source: transformers, generation/logits_process.py.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "generation/text_rules.h"

namespace meshwright::generation {

struct Sampling {
  bool draws = false;  // otherwise the likeliest token, of equal ones that of the lowest id
  double temperature = 1;
  int64_t top_k = 0;  // the likeliest, and those as likely as the last of them; 0: all
  double top_p = 1;   // the likeliest that together have this probability; 1: all
  double min_p = 0;   // those of at least this share of the probability of the likeliest
  double repetition_penalty = 1;  // of tokens that the text has, the prompt included
  friend bool operator==(const Sampling&, const Sampling&) = default;
};

// Errors: kInvalidArgument naming the field, its value and its range.
Status CheckSampling(const Sampling& sampling);

// Whether the next token is the likeliest of the logits as they are.
bool IsLikeliest(const Sampling& sampling);

// Of one draw. position: of the token in its text.
struct DrawKey {
  uint64_t seed = 0;
  uint64_t request = 0;
  uint64_t position = 0;
};

// That tokens can be chosen by them: none is NaN or +inf, and one is larger than -inf. Errors:
// kFailedPrecondition: the model is broken.
Status CheckLogits(std::span<const double> logits);
Status NoNumbers();  // its error

// What is left of the logits, by token; -inf: it cannot be drawn. text: the prompt and what was
// generated. REQUIRES CheckSampling and CheckLogits.
std::vector<double> ProcessLogits(std::span<const double> logits, std::span<const int32_t> text,
                                  const Sampling& sampling, const RulesOfText& rules = {});

inline constexpr int32_t kNoToken = -1;

// kNoToken: the rules leave none. REQUIRES CheckSampling. Errors: CheckLogits.
Result<int32_t> NextToken(std::span<const double> logits, std::span<const int32_t> text,
                          const Sampling& sampling, const DrawKey& key,
                          const RulesOfText& rules = {});

}  // namespace meshwright::generation
