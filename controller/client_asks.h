// What a client asks of a job, checked before anybody is troubled with it.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/job.h"
#include "proto/client_messages.h"

namespace meshwright::controller {

// Of the tensors that it brings.
int64_t BytesOf(const proto::ClientAsk& ask);

// The tensors that devices keep between programs: weights, and what the optimizer has.
using StateNames = std::set<std::string>;

// Errors: kNotFound: unknown program or tensor; kInvalidArgument naming an input that is missing,
// unknown or of another type, or a step that is too high; kFailedPrecondition: a program that this
// job's driver runs itself, or that validates without validation data; kResourceExhausted: more
// bytes than one call may have.
Status CheckAsk(const proto::ClientAsk& ask, const ir::JobRequest& job, const StateNames& state);

// Whether the ask can be carried out now. next_steps: of the programs that were called. Errors:
// kFailedPrecondition naming the program to call first, since the ask reads what it gives out, or
// the step, since counting has come to its end.
Status CheckReady(const proto::ClientAsk& ask, const ir::JobRequest& job,
                  const std::map<std::string, int64_t>& next_steps);

// What a client may call on the job, and with which inputs.
std::vector<proto::ProgramSignature> SignaturesOf(const ir::JobRequest& job);

}  // namespace meshwright::controller
