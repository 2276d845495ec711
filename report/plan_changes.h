// What would make a job fit that does not: the job planned again with changes, from the cheapest
// one on, until enough of them fit.
//
// What a change costs, in this order: taking back a pin of the layout costs nothing, since results
// do not depend on the layout; farther memories cost the time of a step that is said with each,
// the fewer kinds they are for the less; fewer tokens per step cost the share of them that is given
// up (the batch before the sequence at equal shares); memory costs the share of the cluster's
// memory that is added, in larger devices or in more hosts. Any amount of one is cheaper than the
// next.
//
// Thread rule: pure functions of their arguments but for files that the job names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "config/job_config.h"
#include "mesh/topology.h"
#include "search/find_layout.h"

namespace meshwright::report {

enum class ChangeKind : uint8_t { kPin, kTier, kTokens, kMemory };  // from cheap to dear

// A job and a cluster that differ from what was asked in one thing.
struct Change {
  std::string family;  // the least change of a family that fits stands for it
  std::string text;    // what to do, with the key to set
  ChangeKind kind = ChangeKind::kPin;
  double amount = 0;  // within its kind: the share that is given up or added, how much is moved
  config::JobConfig config;
  mesh::Topology topology;
};

// All that may be tried, from cheap to dear.
std::vector<Change> PossibleChanges(const config::JobConfig& config,
                                    const mesh::Topology& topology);

struct FittingChange {
  std::string text;
  double step_s = 0;  // forecast
  std::string layout;
};

// The cheapest changes that fit, at most `most`, each planned in full; `options` are for each of
// the searches. Empty: none of them fits.
std::vector<FittingChange> FindFittingChanges(const config::JobConfig& config,
                                              const mesh::Topology& topology,
                                              const search::FindOptions& options,
                                              const Clock& clock, size_t most = 3);

// Lines for people, with what cost means.
std::string FormatChanges(const std::vector<FittingChange>& changes);

}  // namespace meshwright::report
