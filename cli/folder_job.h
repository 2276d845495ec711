// A job of the model in a Hugging Face folder: what `generate`, `chat` and `eval` open.
//
// Thread rule: reads files; sends them to a cluster.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/client.h"
#include "config/job_config.h"

namespace meshwright::cli {

struct FolderModel {
  std::string folder;
  std::string dtype = "float32";
  std::vector<std::string> overrides = {};
};

// Whether the text is the id of a job, not a folder.
bool IsJobId(const std::string& model);

// For texts of so many tokens. Errors: as ParseJobConfig.
Result<config::JobConfig> FolderConfig(const FolderModel& model, int64_t positions);

// `job` with the folder's weights, which workers read in place or fetch. Errors: kNotFound: it has
// none; kInvalidArgument: they do not fit the job's main program; those of sending.
Result<ir::JobRequest> WithFolderWeights(client::Client& client, const config::JobConfig& config,
                                         ir::JobRequest job);

// Prints why a session could not be opened; the exit code: kExitDoesNotFit where the newest job
// ended for that, as that of `submit`.
int ReportUnopened(client::Client& client, const Status& why);

}  // namespace meshwright::cli
