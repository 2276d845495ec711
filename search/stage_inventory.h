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

// Taking a submesh turns state from + i into to + i, for i < count.
struct InventoryRun {
  int from = 0;
  int to = 0;
  int count = 0;
};

// Submeshes that take the same from every state.
struct InventorySlot {
  std::vector<InventoryRun> runs;
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
    int64_t entries = 150'000;  // of all runs
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
  // When there is one pool and it counts: state s has s units of so many devices free; else 0.
  int devices_per_state() const { return devices_per_state_; }
  int devices() const { return devices_; }  // all of them, in whole units

 private:
  StageInventory() = default;

  int states_ = 1;
  int full_ = 0;
  int devices_ = 0;
  int devices_per_state_ = 0;
  bool real_ = true;
  std::vector<InventorySlot> slots_;
  std::vector<int> slot_of_option_;
  std::vector<InventoryUnit> units_;
};

}  // namespace meshwright::search
