// A job file becomes a plan for the devices that the options name: what `plan` and `verify` begin
// with.
//
// Thread rule: reads files; what --address names is asked.
#pragma once

#include <functional>
#include <optional>

#include "base/result.h"
#include "cli/args.h"
#include "config/job_config.h"
#include "mesh/topology.h"
#include "planner/plan_scope.h"
#include "report/plan_diff.h"
#include "report/plan_job.h"
#include "search/search_time.h"

namespace meshwright::cli {

// A sound job that does not fit.
struct Misfit {
  config::JobConfig config;
  mesh::Topology topology;  // empty: there are no devices at all
  // What is left of the plan's time, to say what would make it fit; none: there is nothing to say.
  std::optional<search::SearchTime> time;
};

struct PlannedFile {
  report::NamedPlan plan;
  mesh::Topology topology;
};

// For which of the devices programs are made.
using ScopeOf = std::function<planner::PlanScope(const mesh::Topology& topology)>;

// Within --plan-timeout, with a line on stderr where that is a terminal. Errors: as
// report::PlanJob.
Result<report::PlannedJob> PlanWithProgress(const PlanArgs& args, config::PreparedJob prepared,
                                            const mesh::Topology& topology,
                                            planner::PlanScope scope);

// `misfit` is set when the job is sound but does not fit the devices. Errors: those of the file,
// its data, the devices and of planning; they name keys as the file does.
Result<PlannedFile> PlanFile(const PlanArgs& given, const GlobalArgs& global, const ScopeOf& scope,
                             std::optional<Misfit>& misfit);

// Says the error on stderr, with what would make a misfit fit, there and as JSON; the exit code.
int ReportPlanError(const Status& error, const PlanArgs& args, const GlobalArgs& global,
                    const std::optional<Misfit>& misfit);

// To stdout, or to `file` where there is one; the exit code.
int PrintResult(const std::string& text, const std::string& file = "");

}  // namespace meshwright::cli
