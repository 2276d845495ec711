// Two plans side by side: what other values of a job's keys would change.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "report/plan_figures.h"

namespace meshwright::report {

// A table with a line per figure: before, after and the relative change. `name`: of the change;
// `notes`: of the plan after it.
std::string FormatWhatIf(const std::string& name, const PlanFigures& before,
                         const PlanFigures& after, const std::vector<std::string>& notes = {});

}  // namespace meshwright::report
