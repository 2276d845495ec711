// What makes exported weights a folder that transformers' from_pretrained takes: config.json,
// generation_config.json, and the tokenizer's files of the folder that the job started from.
//
// Thread rule: one thread; reads and writes files.
#pragma once

#include <string>

#include "base/result.h"
#include "ir/dtype.h"
#include "ir/job.h"

namespace meshwright::cli {

// dtype: of the weights in the folder, which is there. Errors: kFailedPrecondition for a job that
// no job file describes, kUnimplemented for a family without a config.json, kNotFound when
// model.hf_path is gone; each says how to have the weights alone.
Status WriteModelFolder(const ir::JobRequest& job, ir::DType dtype, const std::string& folder);

// That no weights of a model are in the folder, which may be missing: readers would mix them with
// new ones. Errors: kAlreadyExists naming the file.
Status CheckNoWeights(const std::string& folder);

}  // namespace meshwright::cli
