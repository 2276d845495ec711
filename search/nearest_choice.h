// The plan of devices that share cores: layouts that the search prices about equal, and those of
// the same degrees with fewer collectives, made and compared by their forecasts.
//
// What such devices take is a bound in the search's price and a schedule in the forecast. And the
// search keeps the fastest of each family of degrees: it may split what saves next to nothing, one
// weight at a time, or compute a batch in parts that are no faster one by one.
//
// Thread rule: as FindLayout.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "ir/job.h"
#include "mesh/topology.h"
#include "planner/plan.h"
#include "search/find_layout.h"

namespace meshwright::search {

// Jobs whose layout is `layout` without ZeRO, and without some of its microbatches where there are
// no stages, whose bubbles shrink with their number: from the fewest. What is recomputed stays.
// Empty: there is nothing of the kind, or `job` asks for it.
std::vector<ir::JobRequest> JobsWithoutZero(const ir::JobRequest& job,
                                            const planner::Layout& layout);
std::vector<ir::JobRequest> JobsWithFewerMicrobatches(const ir::JobRequest& job,
                                                      const planner::Layout& layout);

struct NearestInput {
  const ir::JobRequest& job;
  const mesh::Topology& topology;
  const FindOptions& options;  // timeout_ms: of all forecasts; one plan may end after it
  const Clock& clock;
  std::function<Result<planner::Plan>(const planner::Layout&)> make_plan;
};

struct NearestChoice {
  planner::Plan plan;
  // The plan's first, then by their seconds, which are those of forecasts: what was priced, and
  // what was preferred to it.
  std::vector<LayoutCost> best;
  double slowdown = 1;     // seconds over those of the fastest forecast
  std::string note;        // what it is slower than; empty: it is the fastest
  bool timed_out = false;  // there was no time for all that may be better
};

// `priced`: from the cheapest, at least one; `first` is the plan of its first. Errors: as
// planner::ForecastStep.
Result<NearestChoice> ChooseNearest(const NearestInput& input,
                                    const std::vector<LayoutCost>& priced, planner::Plan first);

}  // namespace meshwright::search
