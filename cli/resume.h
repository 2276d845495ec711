// What `submit --resume` and `submit --from` go on from.
//
// Thread rule: any; they read folders and ask the controller.
#pragma once

#include <optional>

#include "base/result.h"
#include "cli/args.h"
#include "client/client.h"
#include "config/job_config.h"
#include "ir/job.h"

namespace meshwright::cli {

struct Resumed {
  ir::StartPoint start;
  ir::FolderRef folder;  // of its checkpoints, where the job goes on saving
  ir::JobRequest job;    // that saved it
};

// The arguments with what a job file, or --set where there is none, says of the checkpoint to go on
// from: checkpoint.load_step and checkpoint.exclude_from_loading. Errors: kInvalidArgument: it says
// a step, and no checkpoint is named; those of its configuration.
Result<SubmitArgs> WithStart(const SubmitArgs& args, const config::JobConfig& config);
Result<SubmitArgs> WithStart(const SubmitArgs& args);

// Nothing without --resume and --from. Errors: kNotFound: the job, a checkpoint of it, the folder
// or a root that holds it is not there, each by name.
Result<std::optional<Resumed>> FindResumed(const SubmitArgs& args, const GlobalArgs& global,
                                           client::Client& client);

// The job as it was, with the overrides of the command line. Errors: those of its configuration.
Result<ir::JobRequest> JobAgain(const Resumed& resumed, const SubmitArgs& args);

// `request` goes on from there.
void GoOn(const Resumed& resumed, const SubmitArgs& args, ir::JobRequest& request);

}  // namespace meshwright::cli
