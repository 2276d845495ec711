// Two plans side by side: keys that differ, what the forecast says of both, weights that are split
// differently, layers that moved.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "config/job_config.h"
#include "report/plan_job.h"

namespace meshwright::report {

// A plan with its configuration.
struct NamedPlan {
  std::string name;  // of the file
  config::JobConfig config;
  PlannedJob planned;
};

struct DiffRow {
  std::string what;
  std::string before;
  std::string after;
};

struct PlanDiff {
  // Keys of a job file: what the plans decided in place of what was open, and everything else that
  // differs.
  std::vector<DiffRow> keys;
  // Seconds, bytes and shares of both, equal or not.
  struct Figure {
    std::string name;  // "step_s"
    double before = 0;
    double after = 0;
  };
  std::vector<Figure> figures;
  std::vector<DiffRow> stages;  // layers of each stage, where they differ
  std::vector<DiffRow> params;  // shardings that differ; "-": not there
};

PlanDiff DiffPlans(const NamedPlan& before, const NamedPlan& after);

// For people. At most `most_params` params, then how many more there are.
std::string FormatPlanDiff(const NamedPlan& before, const NamedPlan& after, const PlanDiff& diff,
                           size_t most_params = 20);

// One object with the members of PlanDiff; layers and shardings as text. With a line end.
std::string PlanDiffJson(const NamedPlan& before, const NamedPlan& after, const PlanDiff& diff);

}  // namespace meshwright::report
