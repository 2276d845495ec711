// What follows from several keys of a job file together.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "config/job_config.h"

namespace meshwright::config {

// Replaces what is "auto" or 0 for "as another key says" by its value, except for what the planner
// decides; adds a note for every value that has no effect. `file` is for messages. The errors, all
// of them: kInvalidArgument naming the keys that contradict each other.
std::vector<Status> ResolveConfig(JobConfig& config, const std::string& file);

}  // namespace meshwright::config
