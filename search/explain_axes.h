// Why a plan uses an axis or not: what decided its degree, and what the step would be with another
// one, planned and forecast in full.
//
// What the job pins was not tried otherwise, and is not here. Of another axis the job is planned
// again with this one degree pinned (1 where the plan uses the axis, else 2) and all else open as
// before; the sequence and ZeRO keep the degrees that they are about.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "ir/job.h"
#include "mesh/topology.h"
#include "planner/forecast.h"
#include "planner/plan.h"
#include "search/find_layout.h"

namespace meshwright::search {

enum class AxisDecision : uint8_t {
  kPinned,    // by the job
  kSearched,  // by the search for layouts
  kByRules,   // nothing was compared: what the pins leave over
};
const char* AxisDecisionName(AxisDecision decision);  // "pinned", "searched", ...

struct AxisReason {
  std::string axis;    // "pipeline", "data", "context", "tensor", "expert", "sequence", "zero"
  std::string degree;  // "2"; of the sequence "on" and "off"
  AxisDecision decision = AxisDecision::kSearched;
  std::string key;     // of a job file, which pins it
  std::string other;   // the degree that was tried instead; "": none
  double other_s = 0;  // its step; 0: there is none
  double more_s = 0;   // than the plan's
  std::string where;   // what most of the difference is: "computing", "collectives", "waiting"
  double where_s = 0;
  std::string refused;  // why there is no step with the other degree, or nothing to try
};

struct ExplainAxesInput {
  const ir::JobRequest& job;
  const mesh::Topology& topology;
  const planner::Plan& plan;
  const planner::Forecast& forecast;
  int64_t timeout_ms = 2'000;  // of each search
};

// In the order of AxisReason::axis's list. Errors: none of what a degree cannot be, which is a
// reason.
std::vector<AxisReason> ExplainAxes(const ExplainAxesInput& input, const Clock& clock);

}  // namespace meshwright::search
