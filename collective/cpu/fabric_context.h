// What the parts of one CPU fabric share: who the ranks are, how long a call may take, and how it
// ends early.
//
// Thread rule: immutable after construction, but for latch and memory, which are thread-safe.
// Ownership: the fabric owns it; groups, channels and connections refer to it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "collective/communicator.h"
#include "collective/cpu/abort_latch.h"
#include "collective/cpu/host_memory.h"
#include "collective/cpu/wait.h"

namespace meshwright::collective {

struct FabricContext {
  FabricOptions options;
  std::shared_ptr<Tls> tls;  // of connections to other processes; null: plain
  AbortLatch latch;
  std::function<void(const Status&)> abort;  // Fabric::Abort
  int64_t operation_timeout_ms = 0;          // of a call; 0: it has no deadline
  Patience patience;                         // of waits between threads and processes of this host
  HostMemory memory;

  Deadline OperationDeadline() const {
    if (operation_timeout_ms == 0) return Deadline::max();
    return std::chrono::steady_clock::now() + std::chrono::milliseconds(operation_timeout_ms);
  }
  std::string RankName(int rank) const;                        // "rank 3 (worker-1)"
  std::string RanksName(const std::vector<int>& ranks) const;  // "ranks 2,3 (worker-1)"
};

}  // namespace meshwright::collective
