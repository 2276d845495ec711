// What is left of the hosts while stages take submeshes, as a small set of numbered states: the
// dimension of the stage search that says which devices are still free.
//
// Equal hosts of one class are a pool; a state is one state of every pool. A pool of H hosts with G
// devices counts free units (devices, or groups of them) where that is enough: when the sizes of
// fractions of a host form a chain in which each divides the next and the last divides G, then what
// fits by count can be packed. Otherwise its states are arrangements: how many hosts have how many
// devices free. When those are too many, counts remain, in one of two readings: kRelaxed counts
// what submeshes have, so that no real packing is missed but some that do not exist are met;
// kRounded rounds fractions up to a chain, so that all are real but some are missed.
//
// When states x submeshes exceed a limit, units grow: first to more devices of a host, then to
// groups of hosts (divisors of the number of hosts where there are some within a factor of two).
// A submesh takes whole units then. Given up are plans that need what is left of a unit: with u
// devices per unit each stage wastes at most u - 1 devices (more where fractions of a host are
// rounded up to a chain), and hosts that fill no group stay idle. Few stages per device lose
// little.
//
// Thread rule: immutable after Make. Source: bin packing with divisible item sizes (Coffman, Garey,
// Johnson, Journal of Complexity 3, 1987) for chains.
#pragma once

#include <cstdint>
#include <vector>

#include "search/stage_problem.h"

namespace meshwright::search {

// Taking a submesh turns state from + i into to + i, for i < count. Each i has as many devices more
// free than the one before.
struct InventoryRun {
  int from = 0;
  int to = 0;
  int count = 0;
};

// Submeshes that take the same from every state.
struct InventorySlot {
  std::vector<InventoryRun> runs;
  int device_class = 0;
  int devices = 0;  // that it takes, with the rest of its units; where pools differ, the least
  // Slots of one chain >= 0 lie in ascending order: what has room for one has room for those
  // before it. -1: of no chain.
  int chain = -1;
};

struct InventoryUnit {
  int device_class = 0;
  int host_devices = 0;  // of the pool's hosts
  int unit_devices = 1;  // more: the pool's submeshes are multiples of these
};

class StageInventory {
 public:
  enum class Counts : uint8_t { kRelaxed, kRounded };
  struct Limits {
    int64_t entries = 150'000;  // of all runs; with n pools 1 / n of it
    int arrangements = 600;     // of a pool
  };

  static StageInventory Make(const StageProblem& problem, const Limits& limits, Counts counts);

  int states() const { return states_; }
  int full() const { return full_; }  // nothing is taken
  const std::vector<InventorySlot>& slots() const { return slots_; }
  int slot_of(int option) const { return slot_of_option_[static_cast<size_t>(option)]; }  // or -1
  const std::vector<InventoryUnit>& units() const { return units_; }
  // Whether all that the states allow can be packed.
  bool real() const { return real_; }
  // Devices of a class that are free in a state.
  int free_devices(int device_class, int state) const {
    return free_devices_[static_cast<size_t>(device_class)][static_cast<size_t>(state)];
  }
  int classes() const { return static_cast<int>(free_devices_.size()); }
  int devices() const;  // all of them, in whole units

 private:
  StageInventory() = default;

  int states_ = 1;
  int full_ = 0;
  bool real_ = true;
  std::vector<InventorySlot> slots_;
  std::vector<int> slot_of_option_;
  std::vector<InventoryUnit> units_;
  std::vector<std::vector<int>> free_devices_;  // [class][state]
};

}  // namespace meshwright::search
