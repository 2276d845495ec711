// jobs, logs, cancel, wait, status, and errors.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>

#include "cli/commands.h"
#include "cli/connect.h"
#include "cli/output.h"

namespace meshwright::cli {
namespace {

using client::Client;
using client::JobInfo;
using client::JobState;

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

void PrintEnd(const JobInfo& job, bool json) {
  fmt::print("{}", json ? JobJson(job) + "\n" : FormatJobEnd(job));
}

Result<int> FollowLogs(Client& client, int64_t id) {
  auto end = client.Watch(id, [](const client::JobUpdate& update) {
    for (const std::string& line : update.log_lines) fmt::print("{}\n", line);
    std::fflush(stdout);
    return true;
  });
  if (!end) return Fail(end.error());
  PrintEnd(*end, false);
  return ExitCodeOfJob(*end);
}

}  // namespace

int ReportError(const Status& status) {
  fmt::print(stderr, "error: {}\n", status.message());
  if (status.code() == StatusCode::kUnauthenticated) {
    fmt::print(stderr, "hint: give the cluster's token with --token-file or $MESHWRIGHT_TOKEN\n");
  }
  return ExitCodeOf(status);
}

int RunJobs(const GlobalArgs& global) {
  return WithClient(global, [&](Client& client) -> Result<int> {
    MW_ASSIGN_OR_RETURN(const std::vector<JobInfo> jobs, client.List());
    if (global.json) {
      fmt::print("{}", JobsJson(jobs));
    } else if (jobs.empty()) {
      fmt::print("(no jobs)\n");
    } else {
      fmt::print("{}", FormatJobsTable(jobs, NowUnixMs()));
    }
    return kExitOk;
  });
}

int RunStatus(const GlobalArgs& global) {
  return WithClient(global, [&](Client& client) -> Result<int> {
    MW_ASSIGN_OR_RETURN(const std::vector<client::WorkerInfo> workers, client.Workers());
    MW_ASSIGN_OR_RETURN(const std::vector<JobInfo> jobs, client.List());
    fmt::print("{}",
               global.json ? StatusJson(workers, jobs) : FormatStatus(workers, jobs, NowUnixMs()));
    return kExitOk;
  });
}

int RunLogs(const LogsArgs& args, const GlobalArgs& global) {
  return WithClient(global, [&](Client& client) -> Result<int> {
    if (args.follow) return FollowLogs(client, args.id);
    MW_ASSIGN_OR_RETURN(const std::vector<std::string> lines, client.Logs(args.id));
    for (const std::string& line : lines) fmt::print("{}\n", line);
    return kExitOk;
  });
}

int RunCancel(const CancelArgs& args, const GlobalArgs& global) {
  return WithClient(global, [&](Client& client) -> Result<int> {
    MW_TRY(client.Cancel(args.id));
    fmt::print("job {} is being cancelled\n", args.id);
    return kExitOk;
  });
}

int RunWait(const WaitArgs& args, const GlobalArgs& global) {
  return WithClient(global, [&](Client& client) -> Result<int> {
    MW_ASSIGN_OR_RETURN(const JobInfo job, client.Wait(args.id, args.timeout_s * 1000));
    PrintEnd(job, global.json);
    return ExitCodeOfJob(job);
  });
}

}  // namespace meshwright::cli
