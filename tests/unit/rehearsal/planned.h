// Small jobs of a job file, planned: for tests of rehearsals.
#pragma once

#include <string>
#include <vector>

#include "config/job_config.h"
#include "search/find_layout.h"

namespace meshwright::rehearsal {

struct PlannedCase {
  config::JobConfig config;
  config::PreparedJob prepared;
  search::FoundPlan found;
};

// A GPT-2 of four layers but for what `overrides` say, on devices of this process. Fails the test
// where there is no plan.
PlannedCase Plan(const std::vector<std::string>& overrides, int devices);

}  // namespace meshwright::rehearsal
