// A small job, planned: for tests of what is said about plans.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/job_config.h"
#include "cli/plan_job.h"
#include "mesh/topology.h"

namespace meshwright::cli {

// A model of four layers; `overrides` as of --set, `decisions` the text of a saved plan.
Result<JobConfig> SmallConfig(const std::vector<std::string>& overrides,
                              const std::string& decisions = "");

Result<PlannedJob> PlanSmallJob(const std::vector<std::string>& overrides,
                                const mesh::Topology& topology, const std::string& decisions = "");

}  // namespace meshwright::cli
