#include "report/plan_figures.h"

namespace meshwright::report {

PlanFigures FiguresOf(const PlannedJob& planned) {
  return {planned.forecast.step_s, planner::FullestBytes(planned.plan().memory),
          planned.forecast.model_flops_utilization, planned.plan().layout.ToString()};
}

}  // namespace meshwright::report
