// The few numbers of a plan that tables and pictures show. All of them take them from here, so that
// a quantity has one number.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "report/plan_job.h"

namespace meshwright::report {

struct PlanFigures {
  double step_s = 0;         // forecast: the programs replayed, not what the search estimated
  int64_t memory_bytes = 0;  // allocated, of the fullest device
  double model_flops_utilization = 0;
  std::string layout;
};
PlanFigures FiguresOf(const PlannedJob& planned);

}  // namespace meshwright::report
