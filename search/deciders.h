// How often each way to decide has decided something of a plan: what a solver or a rule is worth.
//
// Thread rule: a value; not shared between threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace meshwright::search {

enum class Decider : uint8_t {
  kEqualStages,    // the layout: the search over equal stages
  kStageSearch,    // the layout: stages that differ
  kShortPrograms,  // the plan is not the fastest layout's, for programs of half the length
  kForecasts,      // the plan is not the cheapest layout's, by forecasts of several
  kRules,          // shardings, where those of a search were compared with them
  kSearch,         // shardings, by a search
  kMessages,       // a problem of shardings: the bound of messages is the answer
  kBranches,       // a problem of shardings: branches closed the gap
  kTime,           // a problem of shardings has a gap: its time was over
};
inline constexpr std::array<const char*, 9> kDeciderNames = {
    "equal stages",       "stages that differ", "shorter programs", "forecasts", "rules",
    "searched shardings", "messages",           "branches",         "time"};

struct DeciderCounts {
  std::array<int64_t, kDeciderNames.size()> times = {};
  void Add(const DeciderCounts& other) {
    for (size_t i = 0; i < times.size(); ++i) times[i] += other.times[i];
  }
  void Add(Decider decider) { ++times[static_cast<size_t>(decider)]; }
  int64_t of(Decider decider) const { return times[static_cast<size_t>(decider)]; }
};

}  // namespace meshwright::search
