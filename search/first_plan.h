// The plan of the first of several layouts that has one: what does not fit is passed over, and so
// is a layout whose programs the verifier rejects, which is a defect of the planner and not of the
// job.
//
// Thread rule: pure functions of what `make_plan` is.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "planner/plan.h"
#include "search/layout_cost.h"

namespace meshwright::search {

struct FirstPlan {
  planner::Plan plan;  // with a note about each layout that was rejected before it
  size_t index = 0;    // of its layout
};

// Errors: kResourceExhausted: none fits, though some may have been rejected; kInternal: all that
// could fit were rejected; any other of `make_plan`, at once. REQUIRES: not empty.
Result<FirstPlan> FirstThatHasAPlan(
    const std::vector<LayoutCost>& layouts,
    const std::function<Result<planner::Plan>(const planner::Layout&)>& make_plan);

}  // namespace meshwright::search
