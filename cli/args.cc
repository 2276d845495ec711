#include "cli/args.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "cli/connect.h"
#include "cli/dry_run_args.h"
#include "cli/job_args.h"
#include "cli/observe_args.h"
#include "cli/tokenizer_args.h"
#include "cli/unknown_word.h"

namespace meshwright::cli {
namespace {

constexpr char kFooter[] =
    "Exit codes: 0 ok, 1 job failed, 2 usage or configuration, 3 controller unreachable, 4 plan "
    "does not fit,\n"
    "5 timeout, 130 interrupted. Address: --address, else $MESHWRIGHT_ADDRESS, else address in\n"
    "~/.config/meshwright/config.toml, else 127.0.0.1:7700. NO_COLOR is honoured.";

const CLI::Range kPort(0, 65535);
const CLI::Range kPortOrNone(-1, 65535);
constexpr int64_t kDayMs = 86'400'000;
const CLI::Range kMemoryMib(int64_t{0}, int64_t{1} << 30);

const CLI::Validator kAddress(
    [](std::string& text) {
      const Status status = CheckAddress(text);
      return status.ok() ? std::string() : status.message();
    },
    "HOST:PORT");

// Everything the parser fills; the chosen subcommand picks one.
struct Storage {
  GlobalArgs global;
  std::string format = "text";
  ControllerArgs controller;
  WorkerArgs worker;
  WorkerOrderArgs worker_order;
  bool orders_worker = false;
  UpArgs up;
  DownArgs down;
  SubmitArgs submit;
  PredictArgs predict;
  GenerateArgs generate;
  ChatArgs chat;
  EvalArgs eval;
  EvaluateArgs evaluate;
  CheckpointArgs checkpoint;
  LogsArgs logs;
  CancelArgs cancel;
  PauseArgs pause;
  ResumeArgs resume;
  WaitArgs wait;
  TimelineArgs timeline;
  WhyArgs why;
  DebugArgs debug;
  DoctorArgs doctor;
  PlanArgs plan;
  std::vector<std::string> plan_words;  // [explain | diff] and what follows
  VerifyArgs verify;
  VisualizeArgs visualize;
  ConfigArgs config;
  TokenizerArgs tokenizer;
  AdapterArgs adapter;
};

void AddProfile(CLI::App& command, std::string& profile) {
  command
      .add_option("--profile", profile,
                  "How fast devices are: cached (measured once per machine), measure, off, or the "
                  "file of a profile")
      ->envname("MESHWRIGHT_PROFILE")
      ->capture_default_str();
}

void AddMemory(CLI::App& command, MemoryArgs& memory) {
  command.add_option("--memory-mib", memory.device_mib, "Per device; 0: share of the machine")
      ->check(kMemoryMib)
      ->capture_default_str();
  command
      .add_option("--host-link-mib-per-s", memory.host_link_mib_per_s,
                  "What CPU devices copy to and from the host's memory in a second, as if it were "
                  "another one; 0: what they can")
      ->check(kMemoryMib)
      ->capture_default_str();
  command.add_option("--scratch-dir", memory.scratch_dir,
                     "Folder of a disk for what jobs keep there (parallelism.optimizer_memory = "
                     "\"disk\"), in files that end with the job; none: no job may");
  command
      .add_option("--scratch-mib", memory.scratch_mib,
                  "Of that disk for all devices of a worker; 0: as it has room")
      ->check(kMemoryMib)
      ->capture_default_str();
  command
      .add_option("--disk-mib-per-s", memory.disk_mib_per_s,
                  "As --host-link-mib-per-s, of that disk")
      ->check(kMemoryMib)
      ->capture_default_str();
}

void AddPage(CLI::App& command, PageArgs& page) {
  command.add_flag("--no-page", page.off, "Metrics and health are all that is served by HTTP");
  command.add_option("--page-token-file", page.token_file,
                     "File with the token of who may look at the page; none: whoever reaches it, "
                     "which is this machine only");
  command.add_option("--operator-token-file", page.operator_token_file,
                     "File with the token of who may stop, pause and save jobs there, too");
  command.add_option("--scrape-token-file", page.scrape_token_file,
                     "File with the token that /metrics and the list of workers want; none: "
                     "whoever reaches them");
  command.add_flag("--page-behind-tls", page.behind_tls,
                   "A proxy in front of the page does TLS, so that tokens are not seen on the way");
}

void AddController(CLI::App& app, Storage& s) {
  CLI::App* controller = app.add_subcommand("controller", "Run the controller in the foreground");
  controller
      ->add_option("--bind", s.controller.bind,
                   "Address to listen on; other than loopback needs a token")
      ->capture_default_str();
  controller->add_option("--port", s.controller.port, "gRPC port; 0: pick")
      ->check(kPort)
      ->capture_default_str();
  controller
      ->add_option("--metrics-port", s.controller.metrics_port,
                   "HTTP port of the page and of Prometheus; 0: pick, -1: none")
      ->check(kPortOrNone)
      ->capture_default_str();
  controller->add_option("--state-dir", s.controller.state_dir, "Jobs, blobs and results")
      ->capture_default_str();
  controller->add_option("--checkpoint-root", s.controller.checkpoint_root,
                         "Folder for checkpoints of jobs whose workers have no --checkpoint-root; "
                         "default: checkpoints/ of the state folder");
  controller
      ->add_option("--worker-lost-ms", s.controller.worker_lost_ms,
                   "Silence after which a worker is lost")
      ->check(CLI::Range(int64_t{1}, kDayMs))
      ->capture_default_str();
  controller
      ->add_option("--max-connections", s.controller.max_connections,
                   "Connections at once, of workers (two each), clients and strangers")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}))
      ->capture_default_str();
  controller
      ->add_option("--blob-keep-hours", s.controller.blob_keep_hours,
                   "How long data and programs stay that no job in the queue or at work uses")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}))
      ->capture_default_str();
  controller
      ->add_option("--blob-quota-gib", s.controller.blob_quota_gib,
                   "Of data and programs together; unused ones go sooner when it is nearly used "
                   "up; 0: none")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20))
      ->capture_default_str();
  controller
      ->add_option("--quarantine-failures", s.controller.quarantine_failures,
                   "A worker whose machine failed so often within ten minutes gets no new work "
                   "until it is uncordoned; 0: never")
      ->check(CLI::Range(int64_t{0}, int64_t{1000}))
      ->capture_default_str();
  controller
      ->add_option(
          "--return-after-s", s.controller.return_after_s,
          "How long a job that goes on with fewer devices has run before it returns to its "
          "plan")
      ->check(CLI::Range(int64_t{0}, int64_t{86'400}))
      ->capture_default_str();
  controller->add_flag("!--no-learn-profiles", s.controller.learn_profiles,
                       "Plan for devices as their workers measured them, not as steps have shown "
                       "them since");
  AddPlanCache(*controller, s.controller.plan_cache);
  AddPage(*controller, s.controller.page);
  controller->add_option("--ready-fd", s.controller.ready_fd, "Descriptor to announce the ports on")
      ->group("");
  controller->add_option("--start-fd", s.controller.start_fd, "Descriptor to wait for")->group("");
}

void AddWorkerOrders(CLI::App& worker, Storage& s) {
  using Action = WorkerOrderArgs::Action;
  const auto add = [&](const char* name, Action action, const char* meaning) {
    CLI::App* command = worker.add_subcommand(name, meaning);
    command->fallthrough();
    command->add_option("worker", s.worker_order.name, "Its name, as in `meshwright status`")
        ->required();
    command->callback([&s, action] {
      s.orders_worker = true;
      s.worker_order.action = action;
    });
    return command;
  };
  CLI::App* drain = add("drain", Action::kDrain,
                        "Give the worker no new work, and have its jobs saved and moved");
  drain->add_option("--deadline-s", s.worker_order.deadline_s, "Then what is left there is ended")
      ->check(CLI::Range(int64_t{1}, kDayMs / 1000))
      ->capture_default_str();
  drain->add_flag("--no-wait", s.worker_order.no_wait, "Do not stay until nothing is left");
  add("evict", Action::kEvict, "The same at once: jobs recover elsewhere, where they may");
  add("cordon", Action::kCordon, "Give the worker no new work; what runs there goes on");
  add("uncordon", Action::kUncordon, "Give it work again, after any of these or a quarantine");
}

void AddWorkerLimits(CLI::App& worker, WorkerArgs& args) {
  worker
      .add_option(
          "--executor-end-s", args.executor_end_s,
          "Time in which the process of a job must let go of its devices; then it is killed")
      ->check(CLI::Range(int64_t{1}, kDayMs / 1000))
      ->capture_default_str();
  worker
      .add_option("--drain-s", args.drain_s,
                  "On SIGTERM, time for its jobs to be saved and moved; 0: it goes at once")
      ->check(CLI::Range(int64_t{0}, kDayMs / 1000))
      ->capture_default_str();
  worker
      .add_option("--collective-timeout-s", args.collective_timeout_s,
                  "How long a collective waits for a peer that is alive; 0: for ever, the job's "
                  "fault_tolerance.stall_seconds says what becomes of one that hangs")
      ->check(CLI::Range(int64_t{0}, kDayMs / 1000))
      ->capture_default_str();
  worker
      .add_option("--actor-silent-s", args.actor_silent_s,
                  "How long a host actor may be at one message; 0: for ever")
      ->check(CLI::Range(int64_t{0}, kDayMs / 1000))
      ->capture_default_str();
}

void AddWorker(CLI::App& app, Storage& s) {
  CLI::App* worker =
      app.add_subcommand("worker", "Run a worker of the controller at --address in the foreground");
  AddWorkerOrders(*worker, s);
  worker->add_option("--name", s.worker.name, "Unique name; default: host and process");
  worker
      ->add_option("--device", s.worker.device,
                   "What computes; auto: GPUs where there are any, else the CPU")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  worker
      ->add_option("--devices", s.worker.devices,
                   "How many GPUs or virtual CPU devices; default: all GPUs, one CPU device")
      ->check(CLI::Range(1, 1024));
  worker
      ->add_option("--gpus", s.worker.gpus,
                   "Which GPUs, e.g. 0,2; default: the first --devices that nobody has")
      ->delimiter(',')
      ->check(CLI::Range(0, 1023));
  worker->add_option("--threads-per-device", s.worker.threads_per_device, "Threads of one device")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  worker->add_flag("--pin", s.worker.pin, "Pin devices to cores");
  worker->add_option("--bind", s.worker.bind, "Address of the data-plane listener")
      ->capture_default_str();
  worker->add_option("--advertise", s.worker.advertise, "Address that peers dial; default: --bind");
  worker->add_option("--data-port", s.worker.data_port, "Data-plane port; 0: pick")
      ->check(kPort)
      ->capture_default_str();
  worker->add_option("--metrics-port", s.worker.metrics_port, "Prometheus port; 0: pick, -1: none")
      ->check(kPortOrNone)
      ->capture_default_str();
  AddDataRoots(*worker, s.worker.data_roots,
               "Folder below which files of jobs are read in place, as PATH or NAME=PATH; "
               "repeatable");
  AddRoots(*worker, "--checkpoint-root", s.worker.checkpoint_roots,
           "Folder below which jobs keep checkpoints, shared by all workers, as PATH or NAME=PATH; "
           "repeatable");
  worker->add_option("--cache-dir", s.worker.cache_dir, "Folder for blobs; default: temporary");
  worker->add_option("--transport", s.worker.transport, "Between workers")
      ->check(CLI::IsMember({"auto", "shm", "tcp"}))
      ->capture_default_str();
  AddMemory(*worker, s.worker.memory);
  worker
      ->add_option("--orphan-grace-s", s.worker.orphan_grace_s,
                   "Time for which jobs go on without a controller at most; 0: they end with it")
      ->check(CLI::Range(int64_t{0}, kDayMs / 1000))
      ->capture_default_str();
  AddWorkerLimits(*worker, s.worker);
  AddWorkerLog(*worker, s.worker);
  AddProfile(*worker, s.worker.profile);
  worker->add_option("--ready-fd", s.worker.ready_fd, "Descriptor to announce the start on")
      ->group("");
  worker->add_option("--start-fd", s.worker.start_fd, "Descriptor to wait for")->group("");
}

void AddCluster(CLI::App& app, Storage& s) {
  CLI::App* up =
      app.add_subcommand("up", "Start a controller and workers on this machine, in the background");
  up->add_option("-n,--workers", s.up.workers, "Worker processes")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  up->add_option("--device", s.up.device, "What computes; cuda: each worker has GPUs of its own")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  up->add_option("--devices-per-worker", s.up.devices_per_worker,
                 "GPUs or virtual CPU devices of a worker")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  up->add_option("--threads-per-device", s.up.threads_per_device, "Threads of one device")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  up->add_option("--dir", s.up.run_dir, "Folder for state, logs and process ids")
      ->capture_default_str();
  up->add_option("--port", s.up.port, "gRPC port; 0: pick")->check(kPort)->capture_default_str();
  up->add_option("--metrics-port", s.up.metrics_port, "Prometheus port; 0: pick")
      ->check(kPort)
      ->capture_default_str();
  up->add_option("--transport", s.up.transport, "Between workers")
      ->check(CLI::IsMember({"auto", "shm", "tcp"}))
      ->capture_default_str();
  up->add_flag("--pin", s.up.pin, "Pin devices to cores");
  AddMemory(*up, s.up.memory);
  AddDataRoots(*up, s.up.data_roots, "As of a worker; default: the current folder");
  AddRoots(*up, "--checkpoint-root", s.up.checkpoint_roots,
           "As of a worker; default: checkpoints/ of the run folder");
  up->add_option("--worker-binary", s.up.worker_binary,
                 "Your own worker, with host actors linked in; default: this binary's");
  AddProfile(*up, s.up.profile);
  up->add_flag("--keep,!--no-keep", s.up.keep,
               "Start a process again when it dies (default); --no-keep: leave it");
  up->add_option("--timeout-ms", s.up.timeout_ms,
                 "For everything to be ready; --profile measure adds 10 s for each worker")
      ->check(CLI::Range(int64_t{1}, kDayMs))
      ->capture_default_str();

  CLI::App* down = app.add_subcommand("down", "Stop what `up` started");
  down->add_option("--dir", s.down.run_dir, "Folder given to `up`")->capture_default_str();
  down->add_option("--timeout-ms", s.down.timeout_ms, "Patience before SIGKILL")
      ->check(CLI::Range(int64_t{0}, kDayMs))
      ->capture_default_str();

  app.add_subcommand("status", "Workers and jobs of the cluster");
}

// --section.key=value is short for --set section.key=value.
std::vector<std::string> SpellOutOverrides(const std::vector<std::string>& args) {
  std::vector<std::string> result;
  for (const std::string& arg : args) {
    const size_t equals = arg.find('=');
    const size_t dot = arg.find('.');
    if (arg.rfind("--", 0) == 0 && equals != std::string::npos && dot < equals) {
      result.insert(result.end(), {"--set", arg.substr(2)});
    } else {
      result.push_back(arg);
    }
  }
  return result;
}

CommandArgs Chosen(const std::string& name, Storage& s) {
  if (name == "controller") return s.controller;
  if (name == "worker" && s.orders_worker) return s.worker_order;
  if (name == "worker") return s.worker;
  if (name == "up") return s.up;
  if (name == "down") return s.down;
  if (name == "submit") return s.submit;
  if (name == "predict") return s.predict;
  if (name == "generate") return s.generate;
  if (name == "chat") return s.chat;
  if (name == "eval") return s.eval;
  if (name == "evaluate") return s.evaluate;
  if (name == "checkpoint") return s.checkpoint;
  if (name == "logs") return s.logs;
  if (name == "cancel") return s.cancel;
  if (name == "pause") return s.pause;
  if (name == "resume") return s.resume;
  if (name == "wait") return s.wait;
  if (name == "timeline") return s.timeline;
  if (name == "why") return s.why;
  if (name == "debug") return s.debug;
  if (name == "doctor") return s.doctor;
  if (name == "status") return StatusArgs{};
  if (name == "plan") return s.plan;
  if (name == "verify") return s.verify;
  if (name == "visualize") return s.visualize;
  if (name == "config") return s.config;
  if (name == "tokenizer") return s.tokenizer;
  if (name == "adapter") return s.adapter;
  return JobsArgs{};
}

void AddGlobal(CLI::App& app, Storage& s) {
  app.set_version_flag(
      "--version", fmt::format("meshwright {} ({})", MESHWRIGHT_VERSION, MESHWRIGHT_BUILD_TYPE));
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option("--address", s.global.address, "Controller, host:port or unix:/path")
      ->check(kAddress);
  app.add_option("--token-file", s.global.token_file,
                 "File with the cluster's token; default: $MESHWRIGHT_TOKEN");
  app.add_option("--color", s.global.color, "Colours on the terminal")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str();
  app.add_option("--log-level", s.global.log_level, "Of the servers")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
      ->capture_default_str();
  AddLogFormat(app, s.global);
  app.add_option("-o,--output", s.format, "Format of results")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app.footer(kFooter);
}

// ---- Usage errors ----

ParsedArgs UsageError(const std::string& text) {
  return {std::nullopt, fmt::format("error: {}\nRun with --help for more information.\n", text),
          kExitUsage};
}

// Options of `submit` that say nothing here.
std::string CheckSubmit(const SubmitArgs& submit) {
  const bool goes_on = submit.resume != 0 || !submit.from.empty();
  if (!goes_on && (submit.step >= 0 || !submit.exclude.empty())) {
    return fmt::format("{} is about a checkpoint: name one with --resume JOB or --from FOLDER",
                       submit.step >= 0 ? "--step" : "--exclude");
  }
  if (submit.file.empty() && (submit.upload || !submit.data_roots.empty())) {
    return fmt::format(
        "{} is about the files of a job file; the job of a checkpoint brings its data along",
        submit.upload ? "--upload" : "--data-root");
  }
  return "";
}

// What the parser's own rules cannot say; "" when there is nothing to object.
std::string CheckCombination(const std::string& command, const Storage& s) {
  static const std::vector<std::string> json_commands = {
      "up",       "status",     "submit",    "jobs",    "logs",    "wait",     "cancel",
      "plan",     "verify",     "pause",     "resume",  "predict", "generate", "eval",
      "evaluate", "checkpoint", "tokenizer", "adapter", "why",     "debug",    "doctor"};
  const bool json = s.format == "json";
  const bool known =
      std::find(json_commands.begin(), json_commands.end(), command) != json_commands.end() ||
      (command == "config" && s.config.action == "schema");
  if (json && !known) {
    return fmt::format("`meshwright {}` has no JSON output: leave out -o json, which is for: {}",
                       command, Join(json_commands, ", "));
  }
  if (command == "predict") {
    const bool file = !s.predict.data.empty();
    if (!file && s.predict.text.empty() && s.predict.tokens.empty()) {
      return "`meshwright predict` needs a text, --tokens, or --data with --out";
    }
    if (file == s.predict.out.empty()) {
      return "--data and --out of `meshwright predict` go together";
    }
  }
  if (command == "submit") return CheckSubmit(s.submit);
  if (command == "logs") return CheckLogs(s.logs);
  return command == "plan" ? CheckPlan(s.plan, json) : "";
}

}  // namespace

int ExitCodeOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return kExitOk;
    case StatusCode::kInvalidArgument:
    case StatusCode::kNotFound:
    case StatusCode::kAlreadyExists:
    case StatusCode::kPermissionDenied:
    case StatusCode::kUnauthenticated:
    case StatusCode::kUnimplemented:
      return kExitUsage;
    case StatusCode::kUnavailable:
      return kExitUnreachable;
    case StatusCode::kDeadlineExceeded:
      return kExitTimeout;
    default:
      return kExitJobFailed;
  }
}

ParsedArgs ParseArgs(const std::vector<std::string>& args) {
  Storage storage;
  CLI::App app("Plans, shards and trains large models over many worker processes.", "meshwright");
  AddGlobal(app, storage);
  AddCluster(app, storage);
  AddJobs(app, {storage.submit, storage.predict, storage.generate, storage.chat, storage.eval,
                storage.evaluate, storage.checkpoint, storage.cancel, storage.pause, storage.resume,
                storage.wait, storage.timeline, storage.why});
  AddLogs(app, storage.logs);
  AddDebug(app, storage.debug);
  AddDoctor(app, storage.doctor);
  AddDryRuns(app, {storage.plan, storage.plan_words, storage.verify, storage.visualize,
                   storage.config, storage.format});
  AddController(app, storage);
  AddWorker(app, storage);
  AddTokenizer(app, storage.tokenizer);
  AddAdapter(app, storage.adapter);
  try {
    std::vector<std::string> reversed = SpellOutOverrides(args);
    std::reverse(reversed.begin(), reversed.end());  // CLI11 takes them last first
    app.parse(reversed);
  } catch (const CLI::ParseError& e) {
    std::ostringstream out;
    std::ostringstream error;
    if (app.exit(e, out, error) == 0) return {std::nullopt, out.str() + error.str(), kExitOk};
    const std::string unknown = ExplainUnknown(app, args);
    return UsageError(unknown.empty() ? e.what() : unknown);
  }
  const CLI::App& chosen = *app.get_subcommands().front();
  const std::string misread =
      storage.plan_words.empty() ? "" : ReadPlanWords(storage.plan_words, storage.plan);
  if (!misread.empty()) return UsageError(misread);
  const std::string objection = CheckCombination(chosen.get_name(), storage);
  if (!objection.empty()) return UsageError(objection);
  storage.global.json = storage.format == "json";
  return {Invocation{storage.global, Chosen(chosen.get_name(), storage)}, "", kExitOk};
}

}  // namespace meshwright::cli
