// A plan as one JSON object, for programs: what `meshwright plan JOB --json` prints.
//
// Field names are stable: seconds end in _s, rates per second in _per_s, bytes in _bytes, shares
// are from 0 to 1. docs/cli.md lists the fields.
//
// Thread rule: pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "mesh/topology.h"
#include "report/plan_changes.h"
#include "report/plan_job.h"
#include "report/plan_what_if.h"

namespace meshwright::report {

struct NamedFigures {
  std::string name;  // of what was changed
  PlanFigures figures;
  std::vector<std::string> notes = {};  // of the second plan
};

// With a line end. `topology`: that of the plan, for budgets. `what_if`: of a second plan.
std::string PlanJson(const PlannedJob& planned, const mesh::Topology& topology,
                     const std::optional<NamedFigures>& what_if = {});

// The same of a plan alone, as far as it knows: without the job's name, its model and the search.
std::string MadePlanJson(const planner::Plan& plan, const planner::Forecast& forecast,
                         const mesh::Topology& topology);

// Of a job that does not fit: "fits" is false, "reason" says why, "changes" what would do.
std::string MisfitJson(const std::string& job, const Status& reason, const FittingChanges& changes);

}  // namespace meshwright::report
