// The files that a job reads: found and checked before a cluster is asked.
#pragma once

#include <string>

#include "base/result.h"
#include "config/job_config.h"

namespace meshwright::cli {

struct InputFiles {
  std::string dataset;
  std::string weights;  // empty: random initialisation
};

// Errors name the key of the job file, the path and what to do: kInvalidArgument no dataset, or a
// folder where a file is meant; kNotFound, kPermissionDenied.
Result<InputFiles> FindInputFiles(const config::JobConfig& config);

}  // namespace meshwright::cli
