// A text, token by token: asks for logits, takes a token, stops.
//
// What the logits come from is the caller's: a program over the whole text, or one that keeps what
// it knows of it. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <vector>

#include "base/result.h"
#include "generation/sampling.h"
#include "generation/text_rules.h"

namespace meshwright::generation {

struct Request {
  std::vector<int32_t> prompt;  // at least one token
  Sampling sampling;
  int64_t max_new_tokens = 1;
  std::set<int32_t> stops;  // each ends the text, and is its last token
  uint64_t seed = 0;
  uint64_t number = 0;               // of the request, under its seed
  std::vector<int32_t> source = {};  // what an encoder reads; the prompt is the decoder's then
  TextRules rules = {};
};

// How many tokens a text gets at most: the last is never computed, so it needs no position.
int64_t LongestOf(const Request& request, int64_t positions);
RulesOfText RulesOf(const Request& request, int64_t positions);

enum class Finish {
  kStop,    // a token of `stops`
  kLength,  // max_new_tokens
  kFull,    // the text has as many tokens as the model has positions
  kBarred,  // the rules leave no token
};
const char* FinishName(Finish finish);

struct Written {
  std::vector<int32_t> tokens;  // without the prompt
  Finish finish = Finish::kLength;
};

// The logits behind the last token of a text, [vocabulary].
using LogitsBehind = std::function<Result<std::vector<double>>(std::span<const int32_t> text)>;
// false: enough.
using OnToken = std::function<bool(int32_t token)>;

// positions: the longest text that logits are known behind. Errors: those of `logits`;
// kInvalidArgument: no prompt, or one that is longer than that; CheckSampling; CheckLogits.
Result<Written> WriteText(const Request& request, int64_t positions, const LogitsBehind& logits,
                          const OnToken& on_token);

}  // namespace meshwright::generation
