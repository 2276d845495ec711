// A plan as a file that a person can read, edit and run again: what was decided, as keys of a job
// file, and what it was decided for.
//
//   # step 80.2 ms, ...
//   [plan]
//   job = "job.toml"            # and set, cluster or devices: what `plan diff` needs to plan it
//   job_fingerprint = "1f0a.."  # model, batch and types; not what the planner decides
//   cluster_fingerprint = "93.."
//   [parallelism]
//   tensor_parallel_degree = 4
//   ...
//
// Its keys are pins over what a job leaves "auto" (ConfigSource::decisions). The fingerprints make
// a note where the file is used for something else; they refuse nothing, since degrees that do not
// fit are refused anyway.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "config/job_config.h"
#include "mesh/topology.h"
#include "planner/forecast.h"
#include "search/find_layout.h"

namespace meshwright::config {

// [plan] of a saved plan.
struct PlanOrigin {
  std::string job;  // path, as it was given
  std::vector<std::string> overrides;
  std::string cluster;  // path; empty: `devices`
  int64_t devices = 0;
  int64_t devices_per_worker = 1;
  std::string job_fingerprint;
  std::string cluster_fingerprint;
};

// The configuration with everything that the plan decided in place of what was open.
JobConfig WithDecisions(JobConfig config, const planner::Plan& plan);

// What there is to save.
struct DecidedPlan {
  const JobConfig& config;
  const PreparedJob& prepared;
  const search::FoundPlan& found;
  const planner::Forecast& forecast;
};

// The text of the file. Of `origin` the job, its overrides, the cluster and the devices of a worker
// are taken; the rest is filled in. Errors: kUnimplemented when keys cannot say what the plan is.
Result<std::string> FormatSavedPlan(PlanOrigin origin, const DecidedPlan& decided,
                                    const mesh::Topology& topology);

// Whether the text is that of a saved plan and not of a job. What is no TOML is neither.
bool IsSavedPlan(std::string_view text);

// Errors: kInvalidArgument "plan.toml:3:1: ..." naming key and value.
Result<PlanOrigin> ParsePlanOrigin(std::string_view text, const std::string& file);

// By the fingerprint, where the plan has one.
bool IsOfAnotherJob(const PlanOrigin& origin, const ir::JobRequest& job);

// "" or what to say when a saved plan is used for another job or cluster than it was made for.
std::string ForeignPlanNote(const PlanOrigin& origin, const std::string& file,
                            const ir::JobRequest& job, const mesh::Topology* topology);

}  // namespace meshwright::config
