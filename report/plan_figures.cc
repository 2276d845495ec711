#include "report/plan_figures.h"

#include <algorithm>

namespace meshwright::report {

int64_t AllocatedBytes(const planner::Plan& plan) {
  int64_t most = 0;
  for (const planner::DeviceMemory& memory : plan.memory) {
    most = std::max(most, memory.total_bytes);
  }
  return most;
}

PlanFigures FiguresOf(const PlannedJob& planned) {
  return {planned.forecast.step_s, AllocatedBytes(planned.plan()),
          planned.forecast.model_flops_utilization, planned.plan().layout.ToString()};
}

}  // namespace meshwright::report
