// The states of one pool of equal hosts; see stage_inventory.h.
//
// Thread rule: values, pure functions.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "search/stage_inventory.h"

namespace meshwright::search {

// Hosts of one class with equally many devices, and the submeshes that options want of them.
struct HostPool {
  int device_class = 0;
  int host_devices = 0;  // of each
  int hosts = 0;
  std::set<SubmeshShape> shapes;  // all of them fit
};

struct PoolStates {
  int states = 1;
  int full = 0;
  int unit_devices = 1;
  bool even = true;               // each state has as many devices more free as the one before
  std::vector<int> free_devices;  // [state]
  bool real = true;
  struct Move {
    int devices = 0;  // taken
    std::vector<InventoryRun> runs;
  };
  std::vector<Move> moves;
  std::map<SubmeshShape, int> move_of;
  int64_t entries() const;  // of all runs
};

// REQUIRES: unit_devices is of PoolUnits(pool).
PoolStates MakePoolStates(const HostPool& pool, int unit_devices, int arrangements,
                          StageInventory::Counts counts);

// 1, ..., all devices of the pool: ascending, each at most twice the one before where the divisors
// of a host allow it.
std::vector<int> PoolUnits(const HostPool& pool);

}  // namespace meshwright::search
