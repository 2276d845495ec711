// What stays on a device that cannot hold all that comes to it: Belady's rule on a list of uses
// that is known before anything runs.
//
// A step uses items in turns; each turn needs some of them at once. An item that is not there is
// fetched. Where there is no room, what is needed again last goes first, of what neither this turn
// needs nor the one before, which still runs while this one's items come. For items of one size no
// other rule fetches less.
//
// A copy may begin before the turn ahead of its own: as soon as there is room until then, so that a
// link that has nothing to do yet does not keep a later turn waiting.
//
// Source: Belady, A study of replacement algorithms for a virtual-storage computer, IBM Systems
// Journal, 1966. Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace meshwright::planner {

struct Residency {
  // Per turn and item, as in `uses`: it has to be fetched.
  std::vector<std::vector<bool>> fetched;
  std::vector<int64_t> held_bytes;  // per turn: that are there while its items come
  int64_t fetched_bytes = 0;
  int64_t most_bytes = 0;  // that are there at once; more than the capacity where turns need more
};

// uses: per turn the items that it needs, each once. bytes: per item.
Residency PlanResidency(const std::vector<std::vector<size_t>>& uses,
                        const std::vector<int64_t>& bytes, int64_t capacity_bytes);

// Per turn and item, as in `uses`: the turn whose items it comes with, its own or an earlier one.
// Copies stay in the order in which they are needed, and what was there before has left two turns
// before it comes again. copied: per turn and item, that it comes by a copy; of others nothing is
// said. REQUIRES the residency of these uses and bytes.
std::vector<std::vector<size_t>> FetchEarly(const std::vector<std::vector<size_t>>& uses,
                                            const std::vector<int64_t>& bytes,
                                            int64_t capacity_bytes, const Residency& residency,
                                            const std::vector<std::vector<bool>>& copied);

}  // namespace meshwright::planner
