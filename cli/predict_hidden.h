// predict on a text in which tokens are hidden: what a model that sees whole texts puts there.
//
// Such a program takes "row" i32[batch, tokens] and gives out "logits" [batch, tokens, vocabulary].
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "client/session.h"
#include "ir/job.h"
#include "report/prediction.h"

namespace meshwright::cli {

// Whether the job's model is asked so.
bool IsAskedForHidden(const ir::JobRequest& job);

struct HiddenToken {
  int64_t position = 0;  // of the token, from 0
  std::vector<report::Likely> likely;
};

// What stands where `tokens` has `mask`. Errors: kInvalidArgument: no token is hidden, more tokens
// than a row has, one that the vocabulary lacks; those of the session.
Result<std::vector<HiddenToken>> PredictHidden(client::Session& session,
                                               const std::vector<int32_t>& tokens, int64_t mask,
                                               int64_t id, int top);

}  // namespace meshwright::cli
