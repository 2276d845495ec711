// What the dry runs of a plan share: a job file and the devices to plan for become a plan, what the
// search chose it from, and a forecast of its step.
//
// Thread rule: one thread; the functions read files, the environment and, with --address, a
// controller.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cli/args.h"
#include "cli/job_config.h"
#include "mesh/topology.h"
#include "planner/forecast.h"
#include "search/find_layout.h"

namespace meshwright::cli {

struct PlannedJob {
  PreparedJob prepared;
  search::FoundPlan found;
  planner::Forecast forecast;
  const planner::Plan& plan() const { return found.plan; }
};

// The devices that the options name: a cluster file, a number, the controller at --address, else as
// many as the degrees' product, else, where a degree is open, the controller at
// $MESHWRIGHT_ADDRESS. Errors: kInvalidArgument: none of these says how many, or two do; those of
// LoadClusterFile, Connect and TopologyOf.
Result<mesh::Topology> PlanTopology(const PlanArgs& args, const GlobalArgs& global,
                                    const ir::JobRequest& job);

// Programs of all devices where `all_programs` or the devices are few; else of one per stage.
planner::PlanScope PlanScopeOf(const mesh::Topology& topology, bool all_programs);

// Errors: those of search::FindPlan, which IsMisfit is about.
Result<PlannedJob> PlanJob(PreparedJob prepared, const mesh::Topology& topology,
                           const search::FindOptions& options, const Clock& clock,
                           planner::PlanScope scope);

}  // namespace meshwright::cli
