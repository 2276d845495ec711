// Who gives way to a job of a higher priority that waits at the head of the queue.
//
// Only jobs that say so (job.preemptible), of a lower priority, and no more of them than are
// needed. Thread rule: PreemptForHead on the core's thread; the rest are pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "controller/core_state.h"

namespace meshwright::controller {

struct PreemptionCandidate {
  JobId job{0};
  int64_t priority = 0;
  int64_t devices = 0;
};

// Those that free `missing` devices: the lowest priorities first, of equals the youngest, none that
// is not needed. Empty: all together are not enough.
std::vector<JobId> ChooseVictims(std::vector<PreemptionCandidate> candidates, int64_t missing);

// Halts them, where the head waits and what it needs does not come free anyhow.
void PreemptForHead(CoreState& core, Context& context);

}  // namespace meshwright::controller
