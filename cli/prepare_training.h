// A job that is to be trained, from its job file and what only the files it names say.
//
// Thread rule: reads files.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "config/job_config.h"

namespace meshwright::cli {

// config::PrepareJob behind what the files say, which is in the configuration then: the format of
// its texts where the job says none and the model's folder has a tokenizer (a note tells it), the
// mask (cli/mask_token.h), the names of classes (cli/image_rows.h).
// Errors: those of all of them.
Result<config::PreparedJob> PrepareTraining(config::JobConfig& config);

// A job file with the decisions of a saved plan; "": of none.
struct PlannedJobFile {
  const std::string& path;
  const std::vector<std::string>& overrides;
  const std::string& decisions;
};

// An error of the job with these decisions. Where the plan was saved for another job the error says
// so first: a pin that contradicts it, or a weight that is not there, is not what is wrong then.
Status NamingOtherJob(const Status& error, const PlannedJobFile& file);

// config::LoadJobConfig, with errors as above.
Result<config::JobConfig> LoadPlannedJob(const PlannedJobFile& file);

}  // namespace meshwright::cli
