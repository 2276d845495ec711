// What a stage of a plan does in a step, and why its layers end where they end: what the step would
// take if a layer moved over one of its boundaries.
//
// Moved boundaries are planned and forecast in full, with all else of the layout as it is.
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

namespace meshwright::search {

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

}  // namespace meshwright::search
