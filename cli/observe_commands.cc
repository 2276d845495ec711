// logs of workers, and debug hang: what an operator looks at.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>

#include "base/clock.h"
#include "base/mutex.h"
#include "cli/commands.h"
#include "cli/connect.h"
#include "cli/interrupt_flag.h"
#include "cli/log_time.h"
#include "cli/output.h"
#include "cli/worker_logs.h"
#include "client/inspector.h"

namespace meshwright::cli {
namespace {

using client::Inspector;

constexpr std::chrono::milliseconds kFollowPause{500};

// Colours and titles of other terminals are not shown, the columns of the line are.
void Print(const std::vector<LogLine>& lines, bool json, bool names) {
  for (const LogLine& line : lines) {
    if (json) {
      fmt::print("{}\n", WorkerLineJson(line));
    } else if (names) {
      fmt::print("{} | {}\n", line.worker, OneLine(line.text));
    } else {
      fmt::print("{}\n", OneLine(line.text));
    }
  }
  std::fflush(stdout);
}

// Workers that there are, or the one that is named, which may be gone; "": the controller.
Result<std::vector<std::string>> WorkersOf(const LogsArgs& args, const GlobalArgs& global) {
  if (args.controller || !args.worker.empty()) return std::vector<std::string>{args.worker};
  MW_ASSIGN_OR_RETURN(const auto connection, Connect(global));
  MW_ASSIGN_OR_RETURN(const auto infos, connection->Workers());
  std::vector<std::string> names;
  for (const client::WorkerInfo& info : infos) names.push_back(info.name);
  return names;
}

void PrintNote(WorkerLogReader& reader) {
  const std::string note = reader.TakeNote();
  if (note.empty()) return;
  std::fflush(stdout);
  fmt::print(stderr, "note: {}\n", note);
}

// All that is there, of each worker, and how many lines. A worker that never said anything is none
// of an error where all are asked.
Result<std::vector<std::vector<LogLine>>> ReadAll(std::vector<WorkerLogReader>& readers, bool one,
                                                  const GlobalArgs& global, size_t& count) {
  std::vector<std::vector<LogLine>> of_workers;
  for (WorkerLogReader& reader : readers) {
    std::vector<LogLine>& lines = of_workers.emplace_back();
    do {
      Result<std::vector<LogLine>> next = reader.Next();
      if (!next.has_value() && !one && next.error().code() == StatusCode::kNotFound) break;
      MW_TRY(next);
      PrintNote(reader);
      count += next->size();
      // One worker's lines go out as they come, however many.
      if (one) {
        Print(*next, global.json, false);
      } else {
        lines.insert(lines.end(), next->begin(), next->end());
      }
    } while (!reader.end());
  }
  return of_workers;
}

// Until Ctrl-C.
Status FollowLogs(std::vector<WorkerLogReader>& readers, const GlobalArgs& global) {
  InterruptFlag interrupt;
  Mutex mutex;
  CondVar never;
  const bool names = readers.size() > 1;
  while (!interrupt.pressed()) {
    for (WorkerLogReader& reader : readers) {
      const Result<std::vector<LogLine>> next = reader.Next();
      if (!next.has_value() && names && next.error().code() == StatusCode::kNotFound) continue;
      MW_TRY(next);
      PrintNote(reader);
      Print(*next, global.json, names);
    }
    const MutexLock lock(mutex);
    (void)never.WaitFor(mutex, kFollowPause);
  }
  return OkStatus();
}

// Says why there is none. Errors: kNotFound: there is no such job.
Status ExplainNoLines(const LogsArgs& args, const GlobalArgs& global) {
  if (args.id != 0) {
    MW_ASSIGN_OR_RETURN(const auto client, Connect(global));
    MW_TRY(client->Get(args.id));
  }
  fmt::print(stderr, "note: {}\n", NoLinesNote(args));
  return OkStatus();
}

Result<int> ShowLogs(const LogsArgs& args, const GlobalArgs& global) {
  client::LogAsk ask;
  ask.kept = args.kept;
  ask.what.job = args.id;
  constexpr int64_t kOfWorkers = 200;
  ask.what.lines = args.lines.value_or(kOfWorkers);
  MW_ASSIGN_OR_RETURN(ask.what.since_unix_ms, SinceUnixMs(args.since, SystemClock().UnixMs()));
  MW_ASSIGN_OR_RETURN(const client::Client::Options options, ClientOptions(global));
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<Inspector> inspector, Inspector::Make(options));
  MW_ASSIGN_OR_RETURN(const std::vector<std::string> workers, WorkersOf(args, global));
  std::vector<WorkerLogReader> readers;
  for (const std::string& worker : workers) {
    ask.worker = worker;
    readers.emplace_back(*inspector, ask);
  }
  const bool one = !args.all;
  size_t count = 0;
  MW_ASSIGN_OR_RETURN(auto of_workers, ReadAll(readers, one, global, count));
  if (!one) Print(MergeLines(std::move(of_workers)), global.json, true);
  if (count == 0) MW_TRY(ExplainNoLines(args, global));
  if (!args.follow) return kExitOk;
  MW_TRY(FollowLogs(readers, global));
  return kExitInterrupted;
}

}  // namespace

int RunWorkerLogs(const LogsArgs& args, const GlobalArgs& global) {
  const Result<int> code = ShowLogs(args, global);
  return code.has_value() ? *code : ReportError(code.error());
}

int RunDebugHang(const DebugArgs& args, const GlobalArgs& global) {
  const auto show = [&]() -> Status {
    MW_ASSIGN_OR_RETURN(const client::Client::Options options, ClientOptions(global));
    MW_ASSIGN_OR_RETURN(const std::unique_ptr<Inspector> inspector, Inspector::Make(options));
    MW_ASSIGN_OR_RETURN(const std::string text, inspector->Hang(args.id, global.json));
    fmt::print("{}", text);
    return OkStatus();
  };
  const Status status = show();
  return status.ok() ? kExitOk : ReportError(status);
}

}  // namespace meshwright::cli
