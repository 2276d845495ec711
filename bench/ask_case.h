// What a client waits for the answer of a host actor, and what a bare call of the controller takes.
//
// The worker that has the actors is this program itself: a worker binary as users write one.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace meshwright::bench {

struct AskCase {
  int64_t asks = 0;
  double ask_seconds = 0;    // median, from Ask to the reply, 16 bytes there and back
  double unary_seconds = 0;  // median, of a gRPC call that the controller answers (Get of the job)
};

// On the cluster at `address`, which gets a worker for as long as this takes. Errors: the
// controller's; kDeadlineExceeded: the worker does not come.
Result<AskCase> RunAskCase(const std::string& address, int64_t asks);

// The worker: `arguments` are those of `meshwright worker`. The exit code of the process.
int AskWorker(int argc, char** argv);

}  // namespace meshwright::bench
