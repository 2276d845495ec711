// The data of a job file as the stream that the job reads: files are found, texts become tokens,
// data sets become the parts of a mixture.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "config/job_config.h"
#include "ir/data_spec.h"

namespace meshwright::cli {

// Errors name the key of the job file, the path and what to do: kInvalidArgument: no dataset, or
// files that are damaged or do not fit together; kNotFound, kPermissionDenied.
Result<ir::DataStream> FindDataset(const config::JobConfig& config);

// What only reading shows: too short for one row, no UTF-8, tokens beyond the vocabulary.
// Errors: kInvalidArgument naming key, file and place.
Status CheckDataset(const config::JobConfig& config, const ir::DataStream& dataset,
                    int64_t vocabulary);

// Where the files of model.hf_path are; "": it is not said.
std::string FolderOfModel(const config::JobConfig& config);

// The tokenizer of the data: the one that is named, else the model's. Errors: kInvalidArgument
// where the job names none; kNotFound.
Result<std::string> TokenizerOf(const config::JobConfig& config);

}  // namespace meshwright::cli
