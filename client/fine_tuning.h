// What makes a training job one that tunes a model: adapters, frozen params, groups of params, and
// terms of the loss. All of it is rewrites of the job's graphs, so it is the same for every model.
//
//   FineTuning tuning;
//   tuning.lora = {.rank = 8, .alpha = 16, .target_modules = {"q_proj", "v_proj"}};
//   MW_ASSIGN_OR_RETURN(ir::JobRequest job, builder.Build(functions));
//   MW_ASSIGN_OR_RETURN(job, WithFineTuning(std::move(job), tuning));
//
// Thread rule: pure functions.
#pragma once

#include <vector>

#include "base/result.h"
#include "ir/adapters.h"
#include "ir/averages.h"
#include "ir/job.h"
#include "ir/loss_terms.h"
#include "ir/param_groups.h"

namespace meshwright::client {

struct FineTuning {
  ir::LoraSpec lora;
  // Behind the adapters: they may name A and B ("*.lora_B.weight"), and the later one counts.
  std::vector<ir::ParamGroup> groups = {};
  ir::LossTerms terms = {};
  double average_decay = 0;  // of means of what is trained (ir/averages.h); 0: none
  friend bool operator==(const FineTuning&, const FineTuning&) = default;
};

// REQUIRES: a job as JobBuilder::Build makes it. Errors: those of ir::WithAdapters,
// ir::WithParamGroups, ir::WithLossTerms and ir::WithAverages; kInvalidArgument where nothing is
// left to train.
Result<ir::JobRequest> WithFineTuning(ir::JobRequest job, const FineTuning& tuning);

}  // namespace meshwright::client
