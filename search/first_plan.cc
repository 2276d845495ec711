// The first of some layouts whose programs fit.
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "planner/memory.h"
#include "search/find_layout.h"

namespace meshwright::search {

Result<FirstPlan> FirstThatHasAPlan(
    const std::vector<LayoutCost>& layouts,
    const std::function<Result<planner::Plan>(const planner::Layout&)>& make_plan,
    const SearchTime& time) {
  MW_CHECK(!layouts.empty()) << "no layout to make a plan of";
  std::vector<std::string> rejected;
  Status failed = OkStatus();
  for (size_t i = 0; i < layouts.size() && (i == 0 || !time.IsOver(false)); ++i) {
    Result<planner::Plan> plan = make_plan(layouts[i].layout);
    if (plan.has_value()) {
      plan->notes.insert(plan->notes.end(), rejected.begin(), rejected.end());
      return FirstPlan{*std::move(plan), i};
    }
    const StatusCode code = plan.error().code();
    if (code == StatusCode::kInternal) {
      rejected.push_back(
          fmt::format("{} is left out, {}", layouts[i].layout.ToString(), plan.error().message()));
    } else if (code != StatusCode::kResourceExhausted) {
      return Fail(plan.error());
    }
    // What does not fit says more about the job than what should not have been.
    if (failed.ok()) failed = plan.error();
    if (code == StatusCode::kResourceExhausted) failed = planner::MoreTelling(failed, plan.error());
  }
  return Fail(failed);
}

}  // namespace meshwright::search
