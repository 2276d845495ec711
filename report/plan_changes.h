// What would make a job fit that does not: the job planned again with changes, from the cheapest
// one on, until enough of them fit.
//
// The least of each kind is offered, with its step by forecast: a pin of the layout that is taken
// back, since results do not depend on the layout; farther memories, the fewer kinds the better;
// fewer tokens per step (the batch before the sequence at equal shares); the least memory of
// devices that fits, found by bisection, each time by a plan in full; more hosts. Where no farther
// memory helps it is said why.
//
// Thread rule: pure functions of their arguments but for files that the job names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/job_config.h"
#include "mesh/topology.h"
#include "search/search_time.h"

namespace meshwright::report {

enum class ChangeKind : uint8_t { kPin, kTier, kTokens, kMemory, kHosts };

// A job and a cluster that differ from what was asked in one thing.
struct Change {
  std::string family;  // the least change of a family that fits stands for it
  std::string text;    // what to do, with the key to set
  ChangeKind kind = ChangeKind::kPin;
  double amount = 0;  // within its kind: the share that is given up or added, how much is moved
  config::JobConfig config;
  mesh::Topology topology;
};

// All that may be tried but memory, by kind and amount.
std::vector<Change> PossibleChanges(const config::JobConfig& config,
                                    const mesh::Topology& topology);

// Devices with so many times their memory, in whole MiB. Nothing: no device says what it has.
std::optional<Change> WithMemory(const config::JobConfig& config, const mesh::Topology& topology,
                                 double factor);

struct FittingChange {
  std::string text;
  double step_s = 0;  // forecast
  std::string layout;
};

struct FittingChanges {
  std::vector<FittingChange> fitting;  // the least of each kind
  std::string why_no_tier;             // what is wrong with the farthest memories; empty: nothing
};

// Each kind has half of what is left of `time`, and so has each of its tries, which are planned in
// full.
FittingChanges FindFittingChanges(const config::JobConfig& config, const mesh::Topology& topology,
                                  const search::SearchTime& time);

// Lines for people.
std::string FormatChanges(const FittingChanges& changes);

}  // namespace meshwright::report
