// A program that says how likely labels are: what evaluations of language models ask.
//
//   inputs   tokens i32[b, s]; labels i32[b, s], of places that do not count anything in the
//            vocabulary; counts f[b, s]: 1 where a label counts, else 0
//            of a model of pairs source i32[b, s]; target i32[b, t], the labels; counts f[b, t]
//   outputs  "log_likelihood" f[b]: sum over the labels that count of log softmax(logits)
//            "hits" f[b]: how many of these labels are what the model finds likeliest
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "client/trainer.h"
#include "ir/job.h"

namespace meshwright::client {

inline constexpr const char* kScoreProgram = "score";

// Errors: what the functions do wrong; kInvalidArgument where they do not predict; kUnimplemented:
// what they predict is no next token. Of functions that have "source" and "target" as inputs the
// program is that of pairs.
Result<ir::JobProgram> ScoreProgram(const GraphShape& shape, const TrainerFunctions& functions);

}  // namespace meshwright::client
