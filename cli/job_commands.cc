// jobs, describe, logs, cancel, pause, resume, wait, status, and errors.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/clock.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/connect.h"
#include "cli/describe.h"
#include "cli/follow.h"
#include "cli/output.h"
#include "config/saved_plan.h"

namespace meshwright::cli {
namespace {

using client::Client;
using client::JobInfo;

int64_t NowUnixMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Runs `body` on a connection; prints what went wrong.
template <typename Body>
int WithClient(const GlobalArgs& global, Body body) {
  auto connection = Connect(global);
  if (!connection) return ReportError(connection.error());
  const Result<int> code = body(**connection);
  return code ? *code : ReportError(code.error());
}

void PrintLogLines(const std::vector<std::string>& lines, bool json) {
  for (const std::string& line : lines) fmt::print("{}\n", json ? LogJson(line) : OneLine(line));
}

FollowOptions OptionsOf(int64_t id, int64_t timeout_s, const GlobalArgs& global) {
  return {
      .job_id = id, .timeout_s = timeout_s, .json = global.json, .color = UseColor(global.color)};
}

// The steps as `submit` shows them; their number is known once the controller has answered.
JobView ViewOf(const client::JobInfo& job, const GlobalArgs& global, bool lines) {
  const bool color = UseColor(global.color);
  return JobView(SystemClock(), {.steps = {.steps = job.steps,
                                           .log_every = ir::TrainSpec().log_every,
                                           .color = color,
                                           .json = global.json,
                                           .width = TerminalColumns(STDOUT_FILENO)},
                                 .events = false,
                                 .step_lines = lines,
                                 .live = !global.json});
}

}  // namespace

int ReportError(const Status& status) {
  std::fflush(stdout);  // so that the error comes last where both are one terminal or file
  fmt::print(stderr, "error: {}\n", status.message());
  if (status.code() == StatusCode::kUnauthenticated) {
    fmt::print(stderr, "hint: give the cluster's token with --token-file or $MESHWRIGHT_TOKEN\n");
  }
  return ExitCodeOf(status);
}

void PrintNotes(const config::JobConfig& config) {
  for (const std::string& note : config.notes) fmt::print(stderr, "note: {}\n", note);
}

void PrintNotes(const models::Model& model) {
  for (const std::string& note : model.notes) fmt::print(stderr, "note: {}\n", note);
}

Status PrintForeignPlan(const std::string& file, const ir::JobRequest& job,
                        const mesh::Topology* topology) {
  if (file.empty()) return OkStatus();
  MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  if (!config::IsSavedPlan(text)) return OkStatus();
  MW_ASSIGN_OR_RETURN(const config::PlanOrigin origin, config::ParsePlanOrigin(text, file));
  const std::string note = config::ForeignPlanNote(origin, file, job, topology);
  if (!note.empty()) fmt::print(stderr, "note: {}\n", note);
  return OkStatus();
}

int RunJobs(const JobsArgs& args, const GlobalArgs& global) {
  return WithClient(global, [&](Client& client) -> Result<int> {
    MW_ASSIGN_OR_RETURN(const std::vector<JobInfo> jobs, client.List());
    if (global.json) {  // programs choose for themselves, by "tool"
      fmt::print("{}", JobsJson(jobs));
      return kExitOk;
    }
    const std::vector<JobInfo> shown = args.all ? jobs : WithoutEndedSessions(jobs);
    if (shown.empty()) {
      fmt::print("(no jobs)\n");
    } else {
      fmt::print("{}", FormatJobsTable(shown, NowUnixMs(), UseColor(global.color)));
    }
    const size_t hidden = jobs.size() - shown.size();
    if (hidden > 0) {
      std::fflush(stdout);
      fmt::print(stderr, "note: {}\n", HiddenSessionsNote(hidden));
    }
    return kExitOk;
  });
}

namespace {

// The workers, once so many are ready.
Result<std::vector<client::WorkerInfo>> AwaitWorkers(Client& client, const StatusArgs& args) {
  constexpr int kAskAgainMs = 200;
  const auto begin = std::chrono::steady_clock::now();
  while (true) {
    MW_ASSIGN_OR_RETURN(std::vector<client::WorkerInfo> workers, client.Workers());
    const auto ready =
        std::count_if(workers.begin(), workers.end(), [](const client::WorkerInfo& worker) {
          return worker.state == "READY" && worker.note.empty();
        });
    if (ready >= args.wait_workers) return workers;
    if (args.timeout_s > 0 &&
        std::chrono::steady_clock::now() - begin > std::chrono::seconds(args.timeout_s)) {
      return Fail(DeadlineExceeded(fmt::format("{} of {} workers are ready after {} s", ready,
                                               args.wait_workers, args.timeout_s)));
    }
    ::poll(nullptr, 0, kAskAgainMs);
  }
}

}  // namespace

int RunStatus(const StatusArgs& args, const GlobalArgs& global) {
  return WithClient(global, [&](Client& client) -> Result<int> {
    MW_ASSIGN_OR_RETURN(const std::vector<client::WorkerInfo> workers, AwaitWorkers(client, args));
    MW_ASSIGN_OR_RETURN(const std::vector<JobInfo> jobs, client.List());
    fmt::print("{}", global.json
                         ? StatusJson(workers, jobs)
                         : FormatStatus(workers, jobs, NowUnixMs(), UseColor(global.color)));
    return kExitOk;
  });
}

int RunDescribe(const DescribeArgs& args, const GlobalArgs& global) {
  return WithClient(global, [&](Client& client) -> Result<int> {
    JobStory story;
    MW_ASSIGN_OR_RETURN(story.info, client.Get(args.id));
    // A job that was never planned has none.
    if (auto description = client.Describe(args.id)) story.request = std::move(description->job);
    MW_ASSIGN_OR_RETURN(story.events, client.Logs(args.id));
    const int64_t now = NowUnixMs();
    fmt::print("{}", global.json
                         ? DescriptionJson(story, args.events, now)
                         : FormatDescription(story, args.events, now, UseColor(global.color)));
    return kExitOk;
  });
}

int RunLogs(const LogsArgs& args, const GlobalArgs& global) {
  if (args.all || args.controller || !args.worker.empty()) return RunWorkerLogs(args, global);
  return WithClient(global, [&](Client& client) -> Result<int> {
    if (args.follow) {
      MW_ASSIGN_OR_RETURN(const JobInfo job, client.Get(args.id));
      JobView view = ViewOf(job, global, /*lines=*/true);
      return FollowJob(client, OptionsOf(args.id, 0, global), view,
                       [&](const client::JobUpdate& update) {
                         if (!update.log_lines.empty()) view.Clear();
                         PrintLogLines(update.log_lines, global.json);
                       });
    }
    MW_ASSIGN_OR_RETURN(std::vector<std::string> lines, client.Logs(args.id));
    const auto most = static_cast<size_t>(args.lines.value_or(0));
    if (most > 0 && lines.size() > most) {
      lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(most));
    }
    PrintLogLines(lines, global.json);
    return kExitOk;
  });
}

namespace {

int PrintJob(Client& client, int64_t id, const GlobalArgs& global, const std::string& text) {
  if (!global.json) {
    fmt::print("{}\n", text);
    return kExitOk;
  }
  const Result<JobInfo> job = client.Get(id);
  if (!job) return ReportError(job.error());
  fmt::print("{}\n", JobJson(*job));
  return kExitOk;
}

// Until the job is paused, or it will not be.
Result<JobInfo> AwaitPause(Client& client, const PauseArgs& args) {
  return client.Watch(
      args.id,
      [](const client::JobUpdate& update) {
        return update.info.state != client::JobState::kPaused && update.info.reason == "Pausing";
      },
      args.timeout_s * 1000);
}

}  // namespace

int RunPause(const PauseArgs& args, const GlobalArgs& global) {
  return WithClient(global, [&](Client& client) -> Result<int> {
    MW_TRY(client.Pause(args.id));
    if (args.no_wait) {
      return PrintJob(client, args.id, global, fmt::format("job {} is being paused", args.id));
    }
    MW_ASSIGN_OR_RETURN(const JobInfo job, AwaitPause(client, args));
    if (job.state == client::JobState::kPaused) {
      return PrintJob(client, args.id, global,
                      fmt::format("job {} is paused after step {} of {}; go on: meshwright resume "
                                  "{}",
                                  job.id, job.steps_done, job.steps, job.id));
    }
    if (job.reason == "Pausing") {
      return Fail(
          DeadlineExceeded(fmt::format("after {} s job {} is still being saved; it will be "
                                       "paused",
                                       args.timeout_s, job.id)));
    }
    return Fail(FailedPrecondition(
        fmt::format("job {} is not paused, it is {}; look with `meshwright logs {}`", job.id,
                    client::JobStateName(job.state), job.id)));
  });
}

int RunResume(const ResumeArgs& args, const GlobalArgs& global) {
  return WithClient(global, [&](Client& client) -> Result<int> {
    MW_TRY(client.Resume(args.id));
    return PrintJob(client, args.id, global,
                    fmt::format("job {} goes on; follow: meshwright logs -f {}", args.id, args.id));
  });
}

int RunCancel(const CancelArgs& args, const GlobalArgs& global) {
  return WithClient(global, [&](Client& client) -> Result<int> {
    MW_TRY(client.Cancel(args.id));
    MW_ASSIGN_OR_RETURN(const JobInfo job, client.Get(args.id));
    const bool done = job.state == client::JobState::kCancelled;
    return PrintJob(client, args.id, global,
                    fmt::format("job {} is {}cancelled", args.id, done ? "" : "being "));
  });
}

int RunWait(const WaitArgs& args, const GlobalArgs& global) {
  return WithClient(global, [&](Client& client) -> Result<int> {
    MW_ASSIGN_OR_RETURN(const JobInfo job, client.Get(args.id));
    JobView view = ViewOf(job, global, /*lines=*/false);
    return FollowJob(client, OptionsOf(args.id, args.timeout_s, global), view);
  });
}

}  // namespace meshwright::cli
