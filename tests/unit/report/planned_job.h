// A small job, planned: for tests of what is said about plans.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "config/job_config.h"
#include "mesh/topology.h"
#include "report/plan_job.h"

namespace meshwright::report {

// A model of four layers; `overrides` as of --set, `decisions` the text of a saved plan.
Result<config::JobConfig> SmallConfig(const std::vector<std::string>& overrides,
                                      const std::string& decisions = "");

Result<PlannedJob> PlanSmallJob(const std::vector<std::string>& overrides,
                                const mesh::Topology& topology, const std::string& decisions = "");

}  // namespace meshwright::report
