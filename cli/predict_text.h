// predict on tokens: what a language model says to them, and whether a program is one.
//
// Such a program takes "window" i32[batch, positions + 1], tokens of which the last is a label
// only, and gives out "logits" [batch, positions, vocabulary]. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/session.h"
#include "report/prediction.h"

namespace meshwright::cli {

inline constexpr const char* kPredictProgram = "predict";
inline constexpr const char* kWindowInput = "window";
inline constexpr const char* kLogitsOutput = "logits";

using Signature = std::map<std::string, ir::TensorType>;

// The inputs of the program "predict". Errors: kFailedPrecondition: the job `id` has none.
Result<Signature> PredictSignature(const client::Session& session, int64_t id);

// Whether these are the inputs of a language model. Errors: kFailedPrecondition naming the program,
// what it takes and what to do.
Status CheckWindow(const Signature& inputs);

// Whether an answer is that of a language model to so many tokens. Errors: kFailedPrecondition
// naming the program, the output and what to do.
Status CheckLogits(const client::Answer& answer, int64_t tokens);

// Whether a vocabulary of that size has all of them. Errors: kInvalidArgument naming the token.
Status CheckTokens(const std::vector<int32_t>& tokens, int64_t vocabulary);

// What the answer says of the tokens of a row. REQUIRES at least one token, CheckLogits and a row
// that the output has. Errors: kInvalidArgument: a token that the vocabulary does not have.
Result<report::Prediction> PredictionOf(const client::Answer& answer, int64_t row,
                                        const std::vector<int32_t>& tokens, int top);

// Asks for what follows `tokens`, of which the last ones that the window has room for count; `id`:
// of the job, for messages. Errors: as above; kInvalidArgument: no token; those of the session.
Result<report::Prediction> PredictText(client::Session& session, std::vector<int32_t> tokens,
                                       int64_t id, int top);

}  // namespace meshwright::cli
