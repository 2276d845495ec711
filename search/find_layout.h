// The inter-operator search: degrees, microbatches, schedule, ZeRO, recomputation and the layers of
// stages of the layout that takes the least time on a cluster.
//
// What a job pins is taken; everything else that is legal is a candidate: tensor x context x data x
// pipeline over the devices (some may stay idle), how many replicas share experts, rows of a
// microbatch, each schedule, each ZeRO stage, and per layer what is recomputed. Layers are measured
// once per kind, degrees, rows and mode (search/layer_probe.h); candidates are priced in the order
// of a lower bound (search/layout_cost.h) until none can beat the best. Stages of different sizes,
// on devices of different speed or where equal ones leave devices idle, are the stage search's
// (search/stage_layouts.h), one answer per number of microbatches; the gap does not speak of them.
//
// Anytime: after the deadline the best so far is the answer, with the gap to the bound. Equal
// requests give equal answers when time does not end the search; ties prefer fewer devices, then
// fewer stages, then less tensor parallelism.
//
// Thread rule: any threads at once; `progress` runs on the caller's.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "ir/job.h"
#include "mesh/topology.h"
#include "planner/plan.h"
#include "search/deciders.h"
#include "search/layout_cost.h"
#include "search/microbatch_prices.h"
#include "search/search_time.h"

namespace meshwright::search {

class PlanCache;

struct FindProgress {
  double best_s = 0;
  double gap = 0;      // of the best: 0.01: nothing is more than 1 % faster
  int64_t priced = 0;  // candidates
  int64_t candidates = 0;
};

struct FindOptions {
  // Of a search for layouts; then the best is the answer. FindPlan has as long again for the plan.
  int64_t timeout_ms = 10'000;
  int64_t patience_ms = 30'000;  // of all of it, while there is none
  int alternatives = 8;
  // Whether a job fits is the question: no time goes to layouts that are better otherwise.
  bool any_that_fits = false;
  // False: the best so far is good enough.
  std::function<bool(const FindProgress&)> progress = {};
  // Of FindPlan (search/plan_cache.h): decisions of the past that it takes and adds to; null: none.
  const PlanCache* cache = nullptr;
};

struct FoundLayout {
  // That fit, from the fastest, with different degrees; at least one. Of FindPlan the first is the
  // plan's, which may be slower, or have the degrees of another (search/nearest_choice.h).
  std::vector<LayoutCost> best;
  double gap = 0;  // of the first
  int64_t priced = 0;
  int64_t candidates = 0;
  // Of all degrees that were looked at; of FindPlan those of the plan's degrees.
  std::vector<MicrobatchPrice> microbatches;
  DeciderCounts deciders;  // of FindPlan those of all searches that it took; none in the cache
};

// Whether the job leaves degrees, schedule or ZeRO to the search: of experts and of context where
// its model has experts and its rows are long. Where it leaves only replicas, microbatches and
// recomputation open, planner::MakePlan's rules decide.
bool LeavesOpen(const ir::JobRequest& job);

// Errors: kInvalidArgument: pins that contradict each other, the job or the cluster, named;
// kResourceExhausted: nothing fits, naming the layout that is nearest, its device and what it
// misses.
// `left_out`: layouts that are no answer, since their programs are known not to fit; none: all are.
using LeftOut = std::function<bool(const planner::Layout&)>;
Result<FoundLayout> FindLayout(const ir::JobRequest& job, const mesh::Topology& topology,
                               const FindOptions& options, const SearchTime& time,
                               const LeftOut& left_out = {});
Result<FoundLayout> FindLayout(const ir::JobRequest& job, const mesh::Topology& topology,
                               const FindOptions& options, const Clock& clock);

struct FoundPlan {
  planner::Plan plan;
  // Its best.front() is the layout of the plan; of grids of the tensor group those that were tried
  // stand among them. `best` is empty where the job left nothing open.
  FoundLayout found;
  bool by_search = false;  // the shardings are the search's and not the rules'
  bool from_cache = false;
};

// The plan of the best layout that the planner's exact memory accepts, or of one that is hardly
// slower and has shorter programs (ShortestOfNearest; a note says so), and what it was chosen from.
// Where devices share cores, of the best few that whose forecast is fastest, or one that is hardly
// slower and has far fewer collectives and messages (ChooseNearest; a note says so, and also where
// the time was not enough to compare them: such a plan is not kept in the cache).
// With job.parallel.shardings "search", the shardings of the best layouts are searched, too
// (search/find_shardings.h), and the plan whose forecast is fastest is the answer; a note says what
// that changed. What the cache has is not searched again; a note says why an entry cannot be used,
// or not be kept. Errors: as FindLayout and planner::MakePlan.
Result<FoundPlan> FindPlan(const ir::JobRequest& job, const mesh::Topology& topology,
                           const FindOptions& options, const Clock& clock,
                           planner::PlanScope scope = planner::PlanScope::kAllDevices);

// What does not fit is passed over, and so is a layout whose programs the verifier rejects, which
// is a defect of the planner and not of the job.
struct FirstPlan {
  planner::Plan plan;  // with a note about each layout that was rejected before it
  size_t index = 0;    // of its layout
};

// When the time is over no other is made. Errors: kResourceExhausted: none fits, though some may
// have been rejected; kInternal: all that could fit were rejected; any other of `make_plan`, at
// once. REQUIRES: not empty.
Result<FirstPlan> FirstThatHasAPlan(
    const std::vector<LayoutCost>& layouts,
    const std::function<Result<planner::Plan>(const planner::Layout&)>& make_plan,
    const SearchTime& time);

}  // namespace meshwright::search
