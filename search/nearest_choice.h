// The plan of devices that share cores: layouts that the search prices about equal, and those of
// the same degrees with fewer collectives, made and compared by their forecasts.
//
// What such devices take is a bound in the search's price and a schedule in the forecast. And the
// search keeps the fastest of each family of degrees: it may split what saves next to nothing, one
// weight at a time, or compute a batch in parts that are no faster one by one.
//
// A forecast is worth some percent, and what it does not know is to wait for one another: waking a
// thread that shares its core, a collective that begins when the last of its members comes. A plan
// with far fewer of these is preferred to one that is hardly faster.
//
// Thread rule: as FindLayout; the rest are pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/job.h"
#include "mesh/topology.h"
#include "planner/plan.h"
#include "search/find_layout.h"

namespace meshwright::search {

// Collectives and messages of one step, of the device that has most.
int64_t CallsOf(const planner::Plan& plan);

// Whether devices of a host compute on the same cores.
bool SharesCores(const mesh::Topology& topology);

struct ForecastPlan {
  double step_s = 0;
  int64_t calls = 0;
};

// REQUIRES: not empty.
size_t FastestOf(std::span<const ForecastPlan> plans);
// Seconds of `plan` over those of the fastest of `plans`.
double SlowdownOf(const ForecastPlan& plan, std::span<const ForecastPlan> plans);

// Whether `plan` is at most 2 % slower than the fastest of `plans` and has no more calls than
// `other`.
bool MayReplace(const ForecastPlan& plan, const ForecastPlan& other,
                std::span<const ForecastPlan> plans);

// The fastest, unless one that is at most 2 % slower has at most half as many calls: the fastest of
// these. REQUIRES: not empty.
size_t ChooseOfNearest(std::span<const ForecastPlan> plans);

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
  const FindOptions& options;
  const SearchTime& time;  // one plan may end after it
  std::function<Result<planner::Plan>(const planner::Layout&)> make_plan;
};

struct NearestChoice {
  planner::Plan plan;
  // The plan's first, then by their seconds, which are those of forecasts: what was priced, and
  // what was preferred to it.
  std::vector<LayoutCost> best;
  double slowdown = 1;     // seconds over those of the fastest forecast
  std::string note;        // what it is slower than; empty: it is the fastest
  bool changed = false;    // it is not the first
  bool timed_out = false;  // there was no time for all that may be better
};

// `priced`: from the cheapest, at least one; `first` is the plan of its first. Errors: as
// planner::ForecastStep.
Result<NearestChoice> ChooseNearest(const NearestInput& input,
                                    const std::vector<LayoutCost>& priced, planner::Plan first);

}  // namespace meshwright::search
