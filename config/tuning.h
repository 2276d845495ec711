// What a job file says about tuning a model: adapters, frozen params, groups, terms of the loss.
//
// Thread rule: reads lora.adapter_path's configuration; else pure.
#pragma once

#include "base/result.h"
#include "client/fine_tuning.h"
#include "config/job_config.h"

namespace meshwright::config {

// Errors: kInvalidArgument and those of reading, naming the key.
Result<client::FineTuning> TuningOf(const JobConfig& config);

}  // namespace meshwright::config
