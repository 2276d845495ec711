// Two plans side by side: what other values of a job's keys would change.
//
// Thread rule: pure functions.
#pragma once

#include <string>

#include "report/plan_figures.h"

namespace meshwright::report {

// A table with a line per figure: before, after and the relative change. `name`: of the change.
std::string FormatWhatIf(const std::string& name, const PlanFigures& before,
                         const PlanFigures& after);

}  // namespace meshwright::report
