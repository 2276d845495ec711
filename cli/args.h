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
#include "cli/record_args.h"
#include "cli/security_args.h"
#include "cli/server_args.h"
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
  bool log_json = false;
  bool json = false;  // -o json
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

// Of a model on data, or, where there is no data, of a job on its own validation data.
struct EvaluateArgs {
  EvalArgs eval;
  int64_t id = 0;       // of the job, without data
  int64_t batches = 0;  // 0: as many as the job's validations had
  std::optional<int64_t> timeout_s;
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
  bool full = false;                 // nothing is folded
  std::string stop_after = "plan";   // graph | step-graph | executable | plan | programs
  std::string out;                   // file; empty: stdout
  std::string timeline;              // file for a Chrome trace of one simulated step
  std::string svg;                   // file for a picture of it
  std::string save;                  // file for the plan's decisions as keys of a job file
  std::string decisions;             // file that --save wrote: its keys are pins; empty: none
  std::vector<std::string> what_if;  // overrides of a second plan, to compare with the first one
  // "default", "off" or a folder (cli/cache_dir.h). The parser's own default is "default".
  std::string plan_cache = "off";
  // Of a plan and of what is said of one that does not fit; none: as search::FindOptions.
  std::optional<double> plan_timeout_s;
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

struct JobsArgs {
  bool all = false;  // also what sessions of tools have left
};
struct LogsArgs : JobArgs {
  std::string worker;            // its log; empty: none in particular
  bool all = false;              // those of all workers
  bool controller = false;       // the controller's own
  std::optional<int64_t> lines;  // the last so many of each; 0: all
  std::string since;             // "10m", a time; empty: whenever
  bool kept = false;             // what the controller keeps
};
// `debug hang`.
struct DebugArgs : JobArgs {};
struct DoctorArgs {
  std::string state_dir;
  std::string cache_dir;
  std::string scratch_dir;
  bool offline = false;
  int64_t timeout_ms = 2000;
};
struct SupportBundleArgs {
  std::string out;       // the archive; empty: one with the time in its name, in the current folder
  int64_t jobs = 10;     // so many of those that have ended
  int64_t sessions = 3;  // the same of sessions of tools
  int64_t lines = 2000;  // of each log
};
struct CancelArgs : JobArgs {};
struct PauseArgs : JobArgs {
  bool no_wait = false;
};
struct ResumeArgs : JobArgs {};
struct WaitArgs : JobArgs {};
// What happened in steps of a job.
struct TimelineArgs : JobArgs {
  std::string steps;          // "A..B", from 1; empty: those that were recorded last
  std::string out = "table";  // "table", "json": the table as JSON; else the file of a Chrome trace
};
struct WhyArgs : JobArgs {
  std::string steps;
};
struct DescribeArgs : JobArgs {
  int64_t events = 8;  // so many of the last
};

struct CompletionArgs {
  std::string shell;  // bash | zsh | fish
};
// What may stand at the end of a command line, for the scripts of `completion`.
struct CompleteArgs {
  std::vector<std::string> words;  // behind "meshwright"; the last one is the one to complete
};

using CommandArgs =
    std::variant<ControllerArgs, WorkerArgs, WorkerOrderArgs, UpArgs, DownArgs, SubmitArgs,
                 PredictArgs, GenerateArgs, ChatArgs, EmbedArgs, EvaluateArgs, CheckpointArgs,
                 JobsArgs, LogsArgs, CancelArgs, PauseArgs, ResumeArgs, WaitArgs, StatusArgs,
                 PlanArgs, VerifyArgs, VisualizeArgs, ConfigArgs, TokenizerArgs, AdapterArgs,
                 TimelineArgs, WhyArgs, DescribeArgs, CompletionArgs, CompleteArgs, DebugArgs,
                 DoctorArgs, RecordsArgs, CompareArgs, CertArgs, SupportBundleArgs>;

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

// A candidate for the end of a command line.
struct Candidate {
  std::string text;
  std::string meaning;
  friend bool operator==(const Candidate&, const Candidate&) = default;
};
// What the command line itself does not know.
enum class Asked : uint8_t { kNothing, kJobs, kWorkers, kKeys };
struct Candidates {
  std::vector<Candidate> known;
  Asked asked = Asked::kNothing;  // ... and those of the controller, or of the table of keys
  std::string before;             // stands before each of those: "--resume="
  bool files = false;             // or files
};
// Made from the parser's own table. Nothing: a file, or a word that nobody knows.
Candidates Complete(const std::vector<std::string>& words);

}  // namespace meshwright::cli
