// What a model says: how likely it finds tokens, what comes next, what class a row is of.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace meshwright::report {

// A token, or a class.
struct Likely {
  int32_t id = 0;
  double probability = 0;
};

struct Prediction {
  int64_t predicted = 0;     // tokens that stand behind another one
  double loss = 0;           // mean of -log p over these, in nats; NaN: there is none
  std::vector<Likely> next;  // the likeliest, in falling order; equal ones by token
};

// logits [positions, vocabulary] of `tokens`: row i is about token i + 1. REQUIRES 1 <= tokens <=
// positions, and tokens below the vocabulary. In f64, with the largest logit taken off first.
Prediction Predict(const std::vector<int32_t>& tokens, const std::vector<double>& logits,
                   int64_t vocabulary, int top);

// The likeliest of the classes that these are the logits of, at least one, likewise.
std::vector<Likely> Likeliest(const std::vector<double>& logits, int top);

// A byte as people read it: "e", "\\n", "\\xff".
std::string ByteText(int32_t byte);

// "12,7,300". Errors: kInvalidArgument naming what is no token.
Result<std::vector<int32_t>> ParseTokens(const std::string& text);

}  // namespace meshwright::report
