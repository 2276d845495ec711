// The command line as data: ParseArgs turns argv into an Invocation, commands take their own
// struct.
//
// CLI11 stays in args.cc. Thread rule: pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "cli/adapter_args.h"
#include "cli/security_args.h"
#include "cli/text_args.h"

namespace meshwright::cli {

// Exit codes of the binary.
inline constexpr int kExitOk = 0;
inline constexpr int kExitJobFailed = 1;
inline constexpr int kExitUsage = 2;        // also: a bad configuration, an unknown job
inline constexpr int kExitUnreachable = 3;  // no controller
inline constexpr int kExitDoesNotFit = 4;   // the plan is infeasible or out of memory
inline constexpr int kExitTimeout = 5;
inline constexpr int kExitInterrupted = 130;

// Of an error outside of a job. kResourceExhausted is a full disk or missing memory of this
// machine, so 1: what does not fit a cluster is told apart where the planner is called.
int ExitCodeOf(const Status& status);

struct GlobalArgs {
  std::string address;     // empty: $MESHWRIGHT_ADDRESS, user config, 127.0.0.1:7700
  std::string token_file;  // empty: $MESHWRIGHT_TOKEN
  TlsArgs tls;
  std::string color = "auto";
  std::string log_level = "info";
  bool json = false;  // -o json
};

// Of the controller's page and metrics.
struct PageArgs {
  bool off = false;
  std::string token_file;           // of who may look; empty: no token
  std::string operator_token_file;  // of who may also act
  std::string scrape_token_file;    // of who may read the metrics
  bool behind_tls = false;
};

struct ControllerArgs {
  std::string bind = "127.0.0.1";
  int port = 7700;
  int metrics_port = 7780;
  std::string state_dir = "runs/controller";
  std::string checkpoint_root;  // empty: in the state folder
  int64_t worker_lost_ms = 6000;
  int64_t max_connections = 4096;
  int64_t blob_keep_hours = 168;
  int64_t blob_quota_gib = 0;  // 0: as the disk has room
  int64_t quarantine_failures = 2;
  int64_t return_after_s = 30;
  bool learn_profiles = true;      // plans go by what steps have shown of devices
  std::string plan_cache = "off";  // as of a plan
  PageArgs page;
  std::string authority_dir;  // that signs for workers that join; empty: beside the identity
  bool cert_init = false;     // makes certificates on its first start
  int ready_fd = -1;          // gets "<port> <metrics port>\n" once the servers listen
  int start_fd = -1;          // see AwaitStart in cli/daemon.h
};

// Of a worker's devices.
struct MemoryArgs {
  int64_t device_mib = 0;
  int64_t host_link_mib_per_s = 0;
  std::string scratch_dir;  // empty: nothing is on a disk
  int64_t scratch_mib = 0;
  int64_t disk_mib_per_s = 0;
};

struct WorkerArgs {
  std::string name;
  std::string join;  // token, or @FILE with one; empty: it has a certificate or needs none
  std::string device = "auto";  // auto | cpu | cuda
  int devices = 0;              // 0: all GPUs, or one CPU device
  std::vector<int> gpus;        // instead of the first `devices`
  int threads_per_device = 1;
  bool pin = false;
  std::string bind = "127.0.0.1";
  std::string advertise;
  int data_port = 0;
  int metrics_port = 0;
  std::string cache_dir;
  std::vector<std::string> data_roots;        // "PATH" or "NAME=PATH"
  std::vector<std::string> checkpoint_roots;  // the same
  std::string transport = "auto";
  MemoryArgs memory;
  int64_t collective_timeout_s = 0;
  int64_t executor_end_s = 10;
  int64_t orphan_grace_s = 600;
  int64_t drain_s = 90;
  int64_t actor_silent_s = 600;
  std::string profile = "cached";  // cached | measure | off | file
  int ready_fd = -1;
  int start_fd = -1;
};

// What `worker drain`, `cordon`, `uncordon` and `evict` say of a worker.
struct WorkerOrderArgs {
  enum class Action : uint8_t { kCordon, kUncordon, kDrain, kEvict };
  Action action = Action::kCordon;
  std::string name;
  int64_t deadline_s = 120;  // of a drain
  bool no_wait = false;
};

struct UpArgs {
  int workers = 2;
  std::string device = "cpu";  // cpu | cuda
  int devices_per_worker = 1;
  int threads_per_device = 1;
  std::string run_dir = "runs/local";
  int port = 7700;
  int metrics_port = 7780;
  std::string transport = "auto";
  bool pin = false;
  MemoryArgs memory;                          // of the workers
  std::vector<std::string> data_roots;        // of the workers; empty: the current folder
  std::vector<std::string> checkpoint_roots;  // of the workers; empty: in the run folder
  std::string worker_binary;                  // of one's own (worker/main.h); empty: this one
  std::string profile = "cached";             // as of a worker
  bool keep = true;                           // processes that die are started again
  int64_t timeout_ms = 60'000;
};

struct DownArgs {
  std::string run_dir = "runs/local";
  int64_t timeout_ms = 10'000;
};

struct SubmitArgs {
  std::string file;                  // may be empty where the job is that of a checkpoint
  int64_t resume = 0;                // the job whose newest checkpoint it goes on from; 0: none
  std::string from;                  // or a folder with checkpoints, or one of them
  int64_t step = -1;                 // which of these; below 0: the newest
  std::vector<std::string> exclude;  // patterns of tensors that start anew
  std::vector<std::string> overrides;
  std::map<std::string, int64_t> keys;  // that have an option of their own; also in overrides
  std::string decisions;                // as of a plan
  bool no_wait = false;
  bool quiet = false;                   // no step lines
  std::vector<std::string> data_roots;  // "NAME=PATH": where this machine has a root of workers
  bool upload = false;                  // also what workers could read in place
  std::string record;                   // file for every step as a JSON line; empty: none
  int64_t timeout_s = 0;                // 0: none
};

enum class CheckpointAction : uint8_t { kList, kInspect, kVerify, kDiff, kExport, kRemove };

struct CheckpointArgs {
  CheckpointAction action = CheckpointAction::kList;
  std::string place;       // a folder, one of its checkpoints, or the id of a job
  std::string other;       // kDiff: what it is compared with; kExport: the file or folder to write
  int64_t step = -1;       // which one of a folder; below 0: the newest
  std::string dtype = "";  // kExport: of the weights; empty: as they are
  int64_t most_file_mib = 5 << 10;  // kExport: of each file of a folder
  bool averages = false;            // kExport: means of weights instead
};

struct EvaluateArgs {
  int64_t id = 0;
  int64_t batches = 0;  // 0: as many as the job's validations had
  int64_t timeout_s = 3600;
};

struct JobArgs {  // jobs, logs, cancel, wait
  int64_t id = 0;
  bool follow = false;
  int64_t timeout_s = 0;
};

enum class PlanAction : uint8_t { kShow, kExplain, kDiff };

struct PlanArgs {
  PlanAction action = PlanAction::kShow;
  std::string file;  // of a job; of kDiff: or of a saved plan
  // Of kExplain: "stage 2", "layers 3-5", a name of a param or value, a glob; empty: the axes.
  std::string subject;
  std::string other;  // of kDiff: what `file` is compared with
  std::vector<std::string> overrides;
  int devices = 0;  // 0: the degrees' product, or the cluster's when --address is given
  int devices_per_worker = 1;
  std::string cluster;  // cluster file to plan for; empty: none
  bool programs = false;
  std::string stop_after = "plan";   // graph | step-graph | executable | plan | programs
  std::string out;                   // file; empty: stdout
  std::string timeline;              // file for a Chrome trace of one simulated step
  std::string svg;                   // file for a picture of it
  std::string save;                  // file for the plan's decisions as keys of a job file
  std::string decisions;             // file that --save wrote: its keys are pins; empty: none
  std::vector<std::string> what_if;  // overrides of a second plan, to compare with the first one
  // "default", "off" or a folder (cli/cache_dir.h). The parser's own default is "default".
  std::string plan_cache = "off";
  double plan_timeout_s = 10;  // of the search; then the best so far is the plan
};

// Ranks that a rehearsal may have at all (rehearsal/rehearse.h).
inline constexpr int kMostVerifiedRanks = 256;

struct VerifyArgs {
  PlanArgs plan;       // what is planned, as `plan` does
  int max_ranks = 64;  // emulated devices, at most
  uint64_t seed = 1;
};

struct VisualizeArgs {
  std::string sharding;  // "f32[8,16{tensor}]"
  std::string mesh;      // "data=2,tensor=2"
  std::string svg;       // file; empty: text on stdout
};

struct ConfigArgs {
  std::string action;  // schema | docs | show | validate
  std::string file;
  std::vector<std::string> overrides;
};

struct JobsArgs {};
struct LogsArgs : JobArgs {};
struct CancelArgs : JobArgs {};
struct PauseArgs : JobArgs {
  bool no_wait = false;
};
struct ResumeArgs : JobArgs {};
struct WaitArgs : JobArgs {};
struct StatusArgs {};
// What happened in steps of a job.
struct TimelineArgs : JobArgs {
  std::string steps;          // "A..B", from 1; empty: those that were recorded last
  std::string out = "table";  // "table", "json": the table as JSON; else the file of a Chrome trace
};
struct WhyArgs : JobArgs {
  std::string steps;
};

using CommandArgs =
    std::variant<ControllerArgs, WorkerArgs, WorkerOrderArgs, UpArgs, DownArgs, SubmitArgs,
                 PredictArgs, GenerateArgs, ChatArgs, EvalArgs, EvaluateArgs, CheckpointArgs,
                 JobsArgs, LogsArgs, CancelArgs, PauseArgs, ResumeArgs, WaitArgs, StatusArgs,
                 PlanArgs, VerifyArgs, VisualizeArgs, ConfigArgs, TokenizerArgs, AdapterArgs,
                 CertArgs, TimelineArgs, WhyArgs>;

struct Invocation {
  GlobalArgs global;
  CommandArgs command;
};

// Either an invocation, or text to print and the exit code (help, version, usage errors).
struct ParsedArgs {
  std::optional<Invocation> invocation;
  std::string text;
  int exit_code = kExitOk;
};

ParsedArgs ParseArgs(const std::vector<std::string>& args);

}  // namespace meshwright::cli
