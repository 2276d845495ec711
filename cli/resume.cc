#include "cli/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/file.h"
#include "checkpoint/folder.h"
#include "checkpoint/reader.h"
#include "cli/checkpoint_place.h"
#include "cli/connect.h"
#include "config/job_config.h"
#include "proto/job_codec.h"

namespace meshwright::cli {
namespace {

void SetCheckpoint(const ir::FolderRef& folder, int64_t step, Resumed& resumed) {
  resumed.folder = folder;
  resumed.start.step = step;
  resumed.start.checkpoint = {folder.root, folder.path + "/" + checkpoint::StepName(step)};
}

// Of folders that only workers see they say it when they load.
Status CheckStep(const SubmitArgs& args, const GlobalArgs& global) {
  if (args.step < 0) return OkStatus();
  const Result<CheckpointPlace> place = CheckpointsOfJob(args.resume, global);
  if (!place.has_value()) return OkStatus();
  const Result<std::vector<int64_t>> steps = StepsOf(*place);
  if (!steps.has_value() || std::find(steps->begin(), steps->end(), args.step) != steps->end()) {
    return OkStatus();
  }
  return NotFound(fmt::format("job {} has no checkpoint of step {}; it has {}", args.resume,
                              args.step, fmt::join(*steps, ", ")));
}

Result<Resumed> OfJob(const SubmitArgs& args, const GlobalArgs& global, client::Client& client) {
  MW_ASSIGN_OR_RETURN(const client::JobInfo info, client.Get(args.resume));
  const int64_t step = args.step >= 0 ? args.step : info.checkpoint_step;
  if (info.checkpoint_folder.path.empty() || step < 0) {
    return Fail(NotFound(
        fmt::format("job {} has no checkpoint to go on from: {}", args.resume,
                    info.checkpoint_folder.path.empty()
                        ? "it keeps none; set checkpoint.enable = true in its job file"
                        : "it ended before the first one was written (checkpoint.interval)")));
  }
  MW_TRY(CheckStep(args, global));
  MW_ASSIGN_OR_RETURN(const proto::JobDescription description, client.Describe(args.resume));
  Resumed resumed;
  resumed.job = description.job;
  SetCheckpoint(info.checkpoint_folder, step, resumed);
  return resumed;
}

Result<ir::FolderRef> AsJobsSayIt(const CheckpointPlace& place, const GlobalArgs& global,
                                  client::Client& client) {
  if (place.remote != nullptr) return place.below;
  MW_ASSIGN_OR_RETURN(const std::vector<client::WorkerInfo> workers, client.Workers());
  MW_ASSIGN_OR_RETURN(const client::Client::Options options, ClientOptions(global));
  MW_ASSIGN_OR_RETURN(const std::string root, client::Checkpoints::Connect(options)->Root());
  return BelowRoot(place.folder, workers, root);
}

Result<Resumed> OfFolder(const SubmitArgs& args, const GlobalArgs& global, client::Client& client) {
  MW_ASSIGN_OR_RETURN(const CheckpointPlace place, FindCheckpoint(args.from, args.step, global));
  MW_ASSIGN_OR_RETURN(const ir::FolderRef folder, AsJobsSayIt(place, global, client));
  MW_ASSIGN_OR_RETURN(const auto reader, OpenCheckpoint(place));
  MW_ASSIGN_OR_RETURN(const std::string bytes, reader->ReadAll(checkpoint::kJobName));
  Resumed resumed;
  MW_ASSIGN_OR_RETURN(resumed.job, proto::DecodeJob(bytes));
  SetCheckpoint(folder, place.step, resumed);
  return resumed;
}

}  // namespace

Result<SubmitArgs> WithStart(const SubmitArgs& args, const config::JobConfig& config) {
  SubmitArgs with = args;
  if (with.exclude.empty()) with.exclude = config.exclude_from_loading;
  if (with.step < 0) with.step = config.load_step;
  const bool goes_on = args.resume > 0 || !args.from.empty();
  if (goes_on) return with;
  if (with.step >= 0) {
    return Fail(InvalidArgument(fmt::format(
        "checkpoint.load_step is {}, and nothing says of what: add --resume JOB or --from FOLDER",
        with.step)));
  }
  if (!with.exclude.empty()) {
    fmt::print(stderr,
               "note: checkpoint.exclude_from_loading has no effect without --resume or "
               "--from\n");
  }
  return with;
}

// What the job of the checkpoint said of its own start is over.
Result<SubmitArgs> WithStart(const SubmitArgs& args) {
  config::ConfigSource source;
  source.file = "--set";
  for (const std::string& text : args.overrides) {
    if (text.starts_with("checkpoint.")) source.overrides.push_back(text);
  }
  MW_ASSIGN_OR_RETURN(const config::JobConfig config, config::ParseJobConfig(source));
  return WithStart(args, config);
}

Result<std::optional<Resumed>> FindResumed(const SubmitArgs& args, const GlobalArgs& global,
                                           client::Client& client) {
  if (args.resume == 0 && args.from.empty()) return std::optional<Resumed>();
  MW_ASSIGN_OR_RETURN(Resumed resumed, args.resume > 0 ? OfJob(args, global, client)
                                                       : OfFolder(args, global, client));
  resumed.start.exclude = args.exclude;
  return std::optional(std::move(resumed));
}

Result<ir::JobRequest> JobAgain(const Resumed& resumed, const SubmitArgs& args) {
  if (args.overrides.empty() && args.decisions.empty()) return resumed.job;
  if (resumed.job.config_text.empty()) {
    return Fail(
        InvalidArgument("the job was not made from a job file, so that --set cannot change "
                        "it; submit it again from the program that made it"));
  }
  config::ConfigSource source;
  source.text = resumed.job.config_text;
  source.file = "the job's configuration";
  source.overrides = args.overrides;
  if (!args.decisions.empty()) {
    MW_ASSIGN_OR_RETURN(source.decisions, ReadFile(args.decisions));
    source.decisions_file = args.decisions;
  }
  MW_ASSIGN_OR_RETURN(const config::JobConfig config, config::ParseJobConfig(source));
  MW_ASSIGN_OR_RETURN(config::PreparedJob prepared, config::PrepareJob(config));
  prepared.request.data = resumed.job.data;
  prepared.request.init_weights = resumed.job.init_weights;
  return std::move(prepared.request);
}

void GoOn(const Resumed& resumed, const SubmitArgs& args, ir::JobRequest& request) {
  request.start = resumed.start;
  if (request.checkpoint.folder.path.empty()) request.checkpoint.folder = resumed.folder;
  // What it started from is in the checkpoint, but for what starts anew.
  if (args.exclude.empty()) request.init_weights = {};
}

}  // namespace meshwright::cli
