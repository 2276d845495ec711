// What a client asks of a job, checked before anybody is troubled with it.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/job.h"
#include "proto/client_messages.h"

namespace meshwright::controller {

// Of the tensors that it brings.
int64_t BytesOf(const proto::ClientAsk& ask);

// Errors: kNotFound: unknown program or tensor; kInvalidArgument naming an input that is missing,
// unknown or of another type; kFailedPrecondition: a program that this job's driver runs itself;
// kResourceExhausted: more bytes than one call may have.
Status CheckAsk(const proto::ClientAsk& ask, const ir::JobRequest& job);

// Whether what the ask reads of other programs is there, when `called` were. Errors:
// kFailedPrecondition naming the program to call first.
Status CheckOutputsMade(const proto::ClientAsk& ask, const ir::JobRequest& job,
                        const std::map<std::string, int64_t>& called);

// What a client may call on the job, and with which inputs.
std::vector<proto::ProgramSignature> SignaturesOf(const ir::JobRequest& job);

}  // namespace meshwright::controller
