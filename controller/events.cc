#include "controller/events.h"

#include <algorithm>

#include "base/check.h"

namespace meshwright::controller {

uint32_t ProgramIndex(const PlannedJob& plan, const std::string& name) {
  const auto it = std::find(plan.programs.begin(), plan.programs.end(), name);
  MW_CHECK(it != plan.programs.end()) << "the plan has no program '" << name << "'";
  return static_cast<uint32_t>(it - plan.programs.begin());
}

JobId JobOf(const Effect& effect) {
  return std::visit(
      [](const auto& value) -> JobId {
        if constexpr (requires { value.job; }) {
          return value.job;
        } else {
          return JobId(0);
        }
      },
      effect);
}

}  // namespace meshwright::controller
