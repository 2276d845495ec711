#include "cli/observe_args.h"

#include <cstdint>

namespace meshwright::cli {
namespace {

const CLI::Range kId(int64_t{1}, INT64_MAX);

}  // namespace

void AddLogs(CLI::App& app, LogsArgs& args) {
  CLI::App* logs = app.add_subcommand("logs", "Events of a job, or the log of a worker");
  logs->add_option("id", args.id, "Job id; with --worker or --all: lines of its processes there")
      ->check(kId);
  logs->add_option("--worker", args.worker,
                   "The log of this worker, also of one that is gone: then its last lines");
  logs->add_flag("--controller", args.controller, "The log of the controller itself");
  logs->add_flag("--all", args.all, "The logs of all workers, in the order of time");
  logs->add_flag("-f,--follow", args.follow,
                 "Of a job: stay until it ends, and show its steps; of workers: until Ctrl-C");
  logs->add_option("--lines", args.lines,
                   "The last so many of a job's or of each worker's, of which it is 200 by itself; "
                   "0: all that are there")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000}));
  logs->add_option("--since", args.since,
                   "Only lines that are younger: 90s, 10m, 2h, 1d, or 2026-03-01T12:00:00Z");
  logs->add_flag("--kept", args.kept,
                 "What the controller keeps of a worker, whether it is here or not");
}

std::string CheckLogs(const LogsArgs& args) {
  const bool workers = args.all || !args.worker.empty();
  if (args.controller) {
    const bool more = workers || args.id != 0 || args.kept;
    return more ? "--controller is a log by itself: leave out job, --worker, --all and --kept" : "";
  }
  if (args.id == 0 && !workers) {
    return "`meshwright logs` needs a job, --worker NAME, --all or --controller: `meshwright "
           "status` lists jobs and workers";
  }
  if (args.all && !args.worker.empty()) return "--all and --worker exclude each other";
  if (!workers && (!args.since.empty() || args.kept)) {
    return "--since and --kept are about logs of workers: add --worker NAME or --all";
  }
  return "";
}

void AddDebug(CLI::App& app, DebugArgs& args) {
  CLI::App* debug = app.add_subcommand("debug", "What a job that stands still waits for");
  debug->require_subcommand(1);
  CLI::App* hang = debug->add_subcommand(
      "hang", "Where each device stands, who waits for whom, and who is suspected");
  hang->fallthrough();
  hang->add_option("id", args.id, "Job id")->required()->check(kId);
}

void AddDoctor(CLI::App& app, DoctorArgs& args) {
  CLI::App* doctor =
      app.add_subcommand("doctor",
                         "Check this machine for a worker or a controller, and say what "
                         "to mend; ends with 1 where something fails");
  doctor->add_option("--state-dir", args.state_dir, "Of a controller that is to run here");
  doctor->add_option("--cache-dir", args.cache_dir, "Of a worker that is to run here");
  doctor->add_option("--scratch-dir", args.scratch_dir, "The same, for what jobs keep on a disk");
  doctor->add_flag("--offline", args.offline, "Ask no controller and no worker");
  doctor->add_option("--timeout-ms", args.timeout_ms, "For each connection")
      ->check(CLI::Range(int64_t{1}, int64_t{600'000}))
      ->capture_default_str();
}

void AddSupportBundle(CLI::App& app, SupportBundleArgs& args) {
  CLI::App* bundle = app.add_subcommand(
      "support-bundle",
      "One archive for who is to find out what went wrong: logs, jobs, metrics, without secrets");
  bundle->add_option("--out", args.out,
                     "The file; default: meshwright-support-TIME.tar in the current folder");
  bundle->add_option("--jobs", args.jobs, "Of those that have ended, the newest so many")
      ->check(CLI::Range(int64_t{0}, int64_t{10'000}))
      ->capture_default_str();
  bundle
      ->add_option("--sessions", args.sessions,
                   "The same of ended sessions of generate, predict, chat, embed and evaluate")
      ->check(CLI::Range(int64_t{0}, int64_t{10'000}))
      ->capture_default_str();
  bundle->add_option("--lines", args.lines, "Of each log, the last so many")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}))
      ->capture_default_str();
}

void AddWorkerLog(CLI::App& worker, WorkerArgs& args) {
  worker.add_option("--log-dir", args.log_dir,
                    "Folder for the worker's log, that `meshwright logs --worker` reads; default: "
                    "it is kept in memory");
  worker.add_option("--log-mib", args.log_mib, "Of that log at most; the oldest lines go first")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
}

void AddLogFormat(CLI::App& app, GlobalArgs& global) {
  app.add_option_function<std::string>(
         "--log-format",
         [&global](const std::string& format) { global.log_json = format == "json"; },
         "Of the servers: text, or json: an object per line")
      ->check(CLI::IsMember({"text", "json"}))
      ->default_str("text");
}

}  // namespace meshwright::cli
