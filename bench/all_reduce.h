// How long our all-reduce takes between processes of this machine.
//
// Thread rule: forks, so it is called while the process has one thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace meshwright::bench {

struct AllReduceOptions {
  int ranks = 2;
  int64_t bytes = 4096;   // of float32
  int64_t repeats = 100;  // calls of a batch, one after the other
  int64_t batches = 5;
  bool stage = false;   // memory that peers cannot map
  bool tcp = false;     // also between processes of this host
  std::string tls_dir;  // TCP by mutual TLS with this identity; empty: plain
};

// Seconds of one call in the median batch, seen from rank 0. Every rank is a forked process with a
// fabric of its own, as workers are; batches start behind a barrier and follow one that warms up.
// Errors: of the fabric; kInternal when a sum is wrong or a process dies.
Result<double> AllReduceSeconds(const AllReduceOptions& options);

}  // namespace meshwright::bench
