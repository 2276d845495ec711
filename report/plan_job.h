// What the dry runs of a plan share: a job file and the devices to plan for become a plan, what the
// search chose it from, and a forecast of its step.
//
// Thread rule: pure functions.
#pragma once

#include "base/clock.h"
#include "base/result.h"
#include "config/job_config.h"
#include "mesh/topology.h"
#include "planner/forecast.h"
#include "search/find_layout.h"

namespace meshwright::report {

struct PlannedJob {
  config::PreparedJob prepared;
  search::FoundPlan found;
  planner::Forecast forecast;
  const planner::Plan& plan() const { return found.plan; }
};

// Errors: those of search::FindPlan, which IsMisfit is about.
Result<PlannedJob> PlanJob(config::PreparedJob prepared, const mesh::Topology& topology,
                           const search::FindOptions& options, const Clock& clock,
                           planner::PlanScope scope);

}  // namespace meshwright::report
