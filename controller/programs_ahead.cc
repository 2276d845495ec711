#include "controller/programs_ahead.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace meshwright::controller {

std::vector<std::shared_ptr<const PlannedJob>> ProgramsAhead::plans() const {
  std::vector<std::shared_ptr<const PlannedJob>> plans;
  for (const auto& [loss, plan] : by_loss_) {
    if (plan != nullptr) plans.push_back(plan);
  }
  std::stable_sort(plans.begin(), plans.end(), [](const auto& one, const auto& other) {
    return one->devices.size() > other->devices.size();
  });
  return plans;
}

ProgramsAhead ProgramsAhead::After(size_t devices, int64_t epoch) const {
  ProgramsAhead next(epoch);
  for (const auto& plan : plans()) {
    if (plan->devices.size() >= devices || next.by_loss_.size() >= kMostKept) continue;
    next.Take(fmt::format("of the plan before: {}", next.by_loss_.size()), plan);
  }
  return next;
}

std::string ProgramsAhead::ToString() const {
  std::vector<std::string> layouts;
  for (const auto& plan : plans()) {
    if (std::find(layouts.begin(), layouts.end(), plan->layout) == layouts.end()) {
      layouts.push_back(plan->layout);
    }
  }
  return fmt::format("{}", fmt::join(layouts, ", or "));
}

std::string ProgramsAhead::Complete(int run) {
  complete_run_ = run;
  std::string text = ToString();
  return std::exchange(told_, text) == text ? "" : text;
}

}  // namespace meshwright::controller
