// What a call of a session costs above its kernels: a program of one node, one call in flight.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "ir/job.h"

namespace meshwright::bench {

// One program of one node, driven by a client.
Result<ir::JobRequest> TinyJob();

struct SessionCase {
  int64_t calls = 0;
  double call_seconds = 0;  // median, from Call to its answer
  double step_seconds = 0;  // median, of the same step on its device, as the worker reports it
};

// On the cluster at `address`. Errors: the controller's.
Result<SessionCase> RunSessionCase(const std::string& address, int64_t calls);

}  // namespace meshwright::bench
