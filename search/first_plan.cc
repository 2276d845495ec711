#include "search/first_plan.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"

namespace meshwright::search {

Result<FirstPlan> FirstThatHasAPlan(
    const std::vector<LayoutCost>& layouts,
    const std::function<Result<planner::Plan>(const planner::Layout&)>& make_plan) {
  MW_CHECK(!layouts.empty()) << "no layout to make a plan of";
  std::vector<std::string> rejected;
  Status failed = OkStatus();
  for (size_t i = 0; i < layouts.size(); ++i) {
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
    if (failed.ok() || code == StatusCode::kResourceExhausted) failed = plan.error();
  }
  return Fail(failed);
}

}  // namespace meshwright::search
