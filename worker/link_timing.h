// What a message and a byte cost between two devices of this machine, through the transports that
// a job takes: the memory of one process, and what connects two workers of one host.
//
// A pair of ranks is two threads of this process. For "host" each has a fabric of its own, with its
// own process id and listener, so that they meet as two workers do. All-reduces of two sizes are
// timed, batches behind a barrier; of each size the median batch counts. With two members an
// all-reduce is two messages and moves as many bytes as there are: seconds = 2 latency + bytes *
// seconds_per_byte (mesh/cost.h).
//
// Links between hosts are not measured here: there is no peer yet.
//
// Thread rule: one call at a time; starts and joins a thread of its own.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/result.h"

namespace meshwright::worker {

struct LinkTiming {
  double latency_s = 0;
  double seconds_per_byte = 0;
  friend bool operator==(const LinkTiming&, const LinkTiming&) = default;
};

struct LinkTimings {
  LinkTiming process;  // devices of one worker
  LinkTiming host;     // workers of one host
};

struct LinkTimingOptions {
  std::string transport = "auto";  // between workers: auto | shm | tcp
  // Of connecting, and of each call: what no partner answers ends after it.
  int64_t timeout_ms = 2000;
};

// Takes some tens of milliseconds on an idle machine. Errors: kInvalidArgument naming an unknown
// transport; kDeadlineExceeded and others of collective/communicator.h.
Result<LinkTimings> TimeLinks(const LinkTimingOptions& options, const Clock& clock);

}  // namespace meshwright::worker
