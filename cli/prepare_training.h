// A job that is to be trained, from its job file and what only the files it names say.
//
// Thread rule: reads files.
#pragma once

#include "base/result.h"
#include "config/job_config.h"

namespace meshwright::cli {

// config::PrepareJob behind what the files say, which is in the configuration then: the format of
// its texts where the job says none and the model's folder has a tokenizer (a note tells it), the
// mask (cli/mask_token.h), the names of classes (cli/image_rows.h).
// Errors: those of all of them.
Result<config::PreparedJob> PrepareTraining(config::JobConfig& config);

}  // namespace meshwright::cli
