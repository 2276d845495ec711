// What a language model says to some tokens: how likely it finds them, and what comes next.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace meshwright::report {

struct NextToken {
  int32_t token = 0;
  double probability = 0;
};

struct Prediction {
  int64_t predicted = 0;        // tokens that stand behind another one
  double loss = 0;              // mean of -log p over these, in nats; NaN: there is none
  std::vector<NextToken> next;  // the likeliest, in falling order; equal ones by token
};

// logits [positions, vocabulary] of `tokens`: row i is about token i + 1. REQUIRES 1 <= tokens <=
// positions, and tokens below the vocabulary. In f64, with the largest logit taken off first.
Prediction Predict(const std::vector<int32_t>& tokens, const std::vector<double>& logits,
                   int64_t vocabulary, int top);

// A byte as people read it: "e", "\\n", "\\xff".
std::string ByteText(int32_t byte);

// "12,7,300". Errors: kInvalidArgument naming what is no token.
Result<std::vector<int32_t>> ParseTokens(const std::string& text);

}  // namespace meshwright::report
