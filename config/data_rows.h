// What a row of a job's data is, by the keys of its file.
//
// Thread rule: pure functions.
#pragma once

#include "base/result.h"
#include "client/trainer.h"
#include "config/job_config.h"

namespace meshwright::config {

// Whether the data are text that a tokenizer makes tokens of.
bool IsTokenized(const JobConfig& config);

// Errors: kInvalidArgument naming the key that the data's format does not have.
Result<client::RowKind> RowKindOf(const JobConfig& config);

// What the job's data will look like once their files are found: streams without files, or none
// where the default is right. Errors: those of RowKindOf and of config/data_sets.h.
Result<ir::DataSpec> DataWithoutFiles(const JobConfig& config);

}  // namespace meshwright::config
