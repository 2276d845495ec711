// What jobs behind the head of the queue may use while it waits.
//
// Nobody knows how long jobs run. So a device may be given away only if the head's start does not
// depend on it, whatever the order in which the jobs that run now end: the head starts as soon as
// enough of them have, and a device that is left over in every such case is spare. Devices of
// another kind are, and all of them where what the head needs is not there to come free.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "controller/kind_placement.h"
#include "controller/placement.h"

namespace meshwright::controller {

// What the head of the queue was found to wait for.
struct HeadWait {
  JobId job{0};
  std::string kind;   // of devices
  int64_t least = 0;  // of them that it cannot do without
  PlacementOutcome outcome = PlacementOutcome::kNoCapacity;
  bool stable = false;  // the cluster has not changed for a while
};

// Of `free` devices, how many a job that runs on for ever may take without putting off the start of
// one that needs `least`. held: the sizes of the jobs that run, each of which frees all at once.
// Below 0: `least` never come free, whatever ends. O(jobs x devices).
int64_t SpareDevices(int64_t least, int64_t free, const std::vector<int64_t>& held);

// The cluster as those behind the head see it.
ClusterView BehindHead(const HeadWait& wait, const ClusterView& cluster);

// The sizes of the jobs that run on open workers' devices of a kind.
std::vector<int64_t> HeldByJobs(const Membership& members, const std::string& kind);

}  // namespace meshwright::controller
