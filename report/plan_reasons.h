// Why a plan is as it is, by what the step would be if one thing were otherwise, planned and
// forecast in full: an axis, with what decided its degree, or the layers of a stage.
//
// What the job pins was not tried otherwise, and is not here. Of another axis the job is planned
// again with this one degree pinned (1 where the plan uses the axis, else 2) and all else open as
// before; the sequence and ZeRO keep the degrees that they are about.
//
// Of a stage a layer moves over one of its boundaries, with all else of the layout as it is.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "ir/job.h"
#include "mesh/topology.h"
#include "planner/forecast.h"
#include "planner/plan.h"
#include "search/find_layout.h"

namespace meshwright::report {

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

// A layer goes to the stage next to it.
struct BoundaryMove {
  int layer = 0;
  int from_stage = 0;
  int to_stage = 0;
  double step_s = 0;         // forecast; 0: it does not fit
  int64_t memory_bytes = 0;  // of the fullest device of the plan
  std::string refused;       // why it does not fit
};

struct StageExplanation {
  int stage = 0;
  planner::StageInfo info;
  // Of its first device, per step: "forward", "backward", "weight gradient", "update", as
  // planner::PieceCategory says.
  std::map<std::string, double> seconds;
  double idle_s = 0;                // of the same device
  planner::DeviceMemory memory;     // of its fullest device
  int64_t budget_bytes = 0;         // 0: unknown
  int64_t messages_sent_bytes = 0;  // per step, by its first device
  std::vector<BoundaryMove> moves;
};

struct ExplainStageInput {
  const ir::JobRequest& job;
  const mesh::Topology& topology;
  const planner::Plan& plan;
  const planner::Forecast& forecast;
  bool by_search = false;  // the plan's shardings are the search's
  int most_moves = 8;      // each is planned in full
};

// Errors: kNotFound when the plan has no such stage; those of planner::ForecastStep.
Result<StageExplanation> ExplainStage(const ExplainStageInput& input, int stage,
                                      const Clock& clock);

// Stages that hold a layer of [first, last], ascending. Errors: kNotFound when there are no such
// layers.
Result<std::vector<int>> StagesOfLayers(const planner::Plan& plan, int first, int last);

}  // namespace meshwright::report
