// predict on whole rows, as the job's model is trained on them: texts of JSON lines, images of
// files and folders. Labels need not be there.
//
// Thread rule: reads and writes files, on threads of its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/data_spec.h"
#include "ir/job.h"
#include "models/registry.h"

namespace meshwright::cli {

// What one sample of a job is; nothing: it is trained on windows of tokens, or no job file says it.
// Errors: those of config::PrepareJob.
Result<std::optional<models::ModelRows>> RowsOfJob(const ir::JobRequest& job);

// The token that stands where one is hidden, of a model that says which it is; nothing: no job file
// says it. Errors: those of config::PrepareJob.
Result<std::optional<int64_t>> MaskOfJob(const ir::JobRequest& job);

struct AskedRows {
  ir::DataStream stream;
  models::ModelRows rows;
};

// The rows, all of which are of the validation; nothing: the model is trained on windows of tokens,
// or the files are arrays already. Errors: as MakeRowFiles and MakeImageRows.
Result<std::optional<AskedRows>> RowsToAsk(const ir::JobRequest& job,
                                           const std::vector<std::string>& paths);

// One text, as the row of a model that says the classes of texts. `folder` is for its files.
// Errors: kFailedPrecondition: the model is asked otherwise, of the job `id`; as MakeRowFiles.
Result<AskedRows> TextToAsk(const ir::JobRequest& job, int64_t id, const std::string& text,
                            const std::string& folder);

}  // namespace meshwright::cli
