// The inter-operator search: which stages of a model run on which submeshes.
//
// The step time of a problem (search/stage_problem.h) has two maxima, of periods and of tails. For
// thresholds on both, search/stage_frontier.h finds the least sum of fills; the search is over the
// thresholds. A box is a range of periods times a range of tails; nothing in it is faster than
//   (m - 1) least period + least tail + least fills under the largest thresholds,
// so boxes are taken in the order of that bound, and divided at the stages found, until none can
// beat the best answer. Thresholds that differ by less than a ratio are one (their largest member
// is tried); with ratio and gap 0 the search is exact.
//
// Submeshes must lie on hosts. Where counts of free devices do not decide that (see
// search/stage_inventory.h for when), the bound is of counts, answers are of fractions of hosts
// rounded up, and the gap says what that may have cost. The bound is of whole units when the
// inventory is so large that several devices or hosts become one unit; the answer names them.
//
// Costs that differ by less than a hundred-millionth count as equal; then the fewest stages win,
// then the fewest devices.
//
// Thread rule: SearchStages from any threads at once; `progress` and the problem's callables run on
// the caller's. Source: Alpa (Zheng et al., OSDI'22) section 5; best first and boxes are ours.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "search/stage_inventory.h"
#include "search/stage_problem.h"

namespace meshwright::search {

struct StageAnswer {
  std::vector<StageChoice> stages;
  StageEvaluation evaluation;  // feasible
  double bound_s = 0;          // no stages of whole units take less
  std::vector<InventoryUnit> units;
  // 0: optimal; 0.01: at most 1 % above the best.
  double gap() const {
    return evaluation.step_s > bound_s ? (evaluation.step_s - bound_s) / evaluation.step_s : 0;
  }
};

struct StageSearchOptions {
  int64_t timeout_ms = 10'000;
  double gap = 0.005;       // good enough
  double bucket_ratio = 0;  // thresholds closer than this are one
  StageInventory::Limits limits = {};
  // Called with each better answer; false: it is good enough.
  std::function<bool(const StageAnswer&)> progress = {};
};

// The best stages found in time; equal problems give equal answers when time does not end the
// search. Errors: kInvalidArgument: CheckStageProblem says so, or range_cost or transfer_s returned
// what is no cost; kResourceExhausted: nothing fits, naming the stage that is nearest to it and by
// how many bytes, or no options cover the layers on these hosts; kDeadlineExceeded: nothing was
// found in time; kInternal: an answer does not cost what the search thought.
Result<StageAnswer> SearchStages(const StageProblem& problem, const StageSearchOptions& options,
                                 const Clock& clock);

}  // namespace meshwright::search
