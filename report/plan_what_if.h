// Two plans side by side: what other values of a job's keys would change.
//
// Thread rule: pure functions.
#pragma once

#include <string>

#include "report/plan_job.h"

namespace meshwright::report {

// What a comparison shows of a plan.
struct PlanFigures {
  double step_s = 0;
  int64_t memory_bytes = 0;  // allocated, of the fullest device
  double model_flops_utilization = 0;
  std::string layout;
};
PlanFigures FiguresOf(const PlannedJob& planned);

// A table with a line per figure: before, after and the relative change. `name`: of the change.
std::string FormatWhatIf(const std::string& name, const PlanFigures& before,
                         const PlanFigures& after);

}  // namespace meshwright::report
