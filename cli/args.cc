#include "cli/args.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "cli/completion.h"
#include "cli/connect.h"
#include "cli/dry_run_args.h"
#include "cli/job_args.h"
#include "cli/man_page.h"
#include "cli/observe_args.h"
#include "cli/server_args.h"
#include "cli/tokenizer_args.h"
#include "cli/unknown_word.h"

namespace meshwright::cli {
namespace {

constexpr char kFooter[] =
    "Exit codes: 0 ok, 1 job failed, 2 usage or configuration, 3 controller unreachable, 4 plan "
    "does not fit,\n"
    "5 timeout, 130 interrupted. Address: --address, else $MESHWRIGHT_ADDRESS, else address in\n"
    "~/.config/meshwright/config.toml, else 127.0.0.1:7700. NO_COLOR is honoured.";

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
  StatusArgs status;
  SubmitArgs submit;
  PredictArgs predict;
  GenerateArgs generate;
  ChatArgs chat;
  EmbedArgs embed;
  EvaluateArgs evaluate;
  CheckpointArgs checkpoint;
  LogsArgs logs;
  CancelArgs cancel;
  PauseArgs pause;
  ResumeArgs resume;
  WaitArgs wait;
  TimelineArgs timeline;
  WhyArgs why;
  DescribeArgs describe;
  JobsArgs jobs;
  CompletionArgs completion;
  std::vector<std::string> help_words;
  DebugArgs debug;
  DoctorArgs doctor;
  SupportBundleArgs support_bundle;
  RecordsArgs records;
  CompareArgs compare;
  PlanArgs plan;
  std::vector<std::string> plan_words;  // [explain | diff] and what follows
  VerifyArgs verify;
  VisualizeArgs visualize;
  ConfigArgs config;
  TokenizerArgs tokenizer;
  AdapterArgs adapter;
  CertArgs cert;
};

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
  if (name == "embed") return s.embed;
  if (name == "evaluate") return s.evaluate;
  if (name == "checkpoint") return s.checkpoint;
  if (name == "logs") return s.logs;
  if (name == "cancel") return s.cancel;
  if (name == "pause") return s.pause;
  if (name == "resume") return s.resume;
  if (name == "wait") return s.wait;
  if (name == "timeline") return s.timeline;
  if (name == "why") return s.why;
  if (name == "describe") return s.describe;
  if (name == "completion") return s.completion;
  if (name == "debug") return s.debug;
  if (name == "doctor") return s.doctor;
  if (name == "support-bundle") return s.support_bundle;
  if (name == "records") return s.records;
  if (name == "compare") return s.compare;
  if (name == "status") return s.status;
  if (name == "plan") return s.plan;
  if (name == "verify") return s.verify;
  if (name == "visualize") return s.visualize;
  if (name == "config") return s.config;
  if (name == "tokenizer") return s.tokenizer;
  if (name == "adapter") return s.adapter;
  if (name == "cert") return s.cert;
  return s.jobs;
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
  AddTls(app, s.global.tls);
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

std::string CheckEvaluate(const EvaluateArgs& evaluate) {
  if (!evaluate.eval.data.empty() || ParseInt(evaluate.eval.model).value_or(0) >= 1) return "";
  return fmt::format(
      "{} is no job number; a folder has no validation data of its own: name a file with --data",
      evaluate.eval.model);
}

// What the parser's own rules cannot say; "" when there is nothing to object.
std::string CheckCombination(const std::string& command, const Storage& s) {
  static const std::vector<std::string> json_commands = {
      "up",       "status",     "submit",    "jobs",    "logs",          "wait",     "cancel",
      "plan",     "verify",     "pause",     "resume",  "predict",       "generate", "embed",
      "evaluate", "checkpoint", "tokenizer", "adapter", "timeline",      "why",      "describe",
      "debug",    "doctor",     "records",   "compare", "support-bundle"};
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
  if (command == "embed" && s.embed.texts.empty() == s.embed.file.empty()) {
    return "`meshwright embed` needs texts, or --file with one in each line";
  }
  if (command == "submit") return CheckSubmit(s.submit);
  if (command == "evaluate") return CheckEvaluate(s.evaluate);
  if (command == "logs") return CheckLogs(s.logs);
  if (command == "records") return CheckRecords(s.records);
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

namespace {

void AddHelp(CLI::App& app, Storage& s) {
  CLI::App* completion = app.add_subcommand(
      "completion", "A script for a shell that completes commands, options, jobs and keys");
  completion->add_option("shell", s.completion.shell, "Which; the script's first lines say how")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  app.add_subcommand("help", "What a command does, and its options")
      ->add_option("command", s.help_words, "For example: submit, or worker drain")
      ->expected(0, 3);
}

void AddAll(CLI::App& app, Storage& storage) {
  AddGlobal(app, storage);
  const ServerCommands servers{storage.controller,    storage.worker, storage.worker_order,
                               storage.orders_worker, storage.up,     storage.down,
                               storage.status};
  AddCluster(app, servers);
  AddJobs(app, {storage.submit, storage.predict, storage.generate, storage.chat, storage.embed,
                storage.evaluate, storage.checkpoint, storage.cancel, storage.pause, storage.resume,
                storage.wait, storage.timeline, storage.why, storage.describe, storage.jobs});
  AddLogs(app, storage.logs);
  AddDebug(app, storage.debug);
  AddDoctor(app, storage.doctor);
  AddSupportBundle(app, storage.support_bundle);
  AddRecords(app, storage.records);
  AddCompare(app, storage.compare);
  AddDryRuns(app, {storage.plan, storage.plan_words, storage.verify, storage.visualize,
                   storage.config, storage.format});
  AddController(app, servers);
  AddWorker(app, servers);
  AddTokenizer(app, storage.tokenizer);
  AddAdapter(app, storage.adapter);
  AddCert(app, storage.cert);
  AddHelp(app, storage);
}

constexpr char kMeaning[] = "Plans, shards and trains large models over many worker processes.";

// `help submit` is `submit --help`. Nothing: a command that there is not.
std::optional<std::vector<std::string>> SpellOutHelp(const CLI::App& app,
                                                     const std::vector<std::string>& args) {
  if (args.empty() || args.front() != "help") return args;
  std::vector<std::string> words(args.begin() + 1, args.end());
  if (!ExplainUnknown(app, words).empty()) return {};
  words.emplace_back("--help");
  return words;
}

}  // namespace

Candidates Complete(const std::vector<std::string>& words) {
  Storage storage;
  CLI::App app(kMeaning, "meshwright");
  AddAll(app, storage);
  return CompleteIn(app, words);
}

ParsedArgs ParseArgs(const std::vector<std::string>& given) {
  if (!given.empty() && given.front() == "__complete") {
    return {Invocation{{}, CompleteArgs{{given.begin() + 1, given.end()}}}, "", kExitOk};
  }
  Storage storage;
  CLI::App app(kMeaning, "meshwright");
  AddAll(app, storage);
  if (given == std::vector<std::string>{"__man"}) {
    return {std::nullopt, ManPage(app, MESHWRIGHT_VERSION), kExitOk};
  }
  const auto spelled = SpellOutHelp(app, given);
  if (!spelled) return UsageError(ExplainUnknown(app, {given.begin() + 1, given.end()}));
  const std::vector<std::string>& args = *spelled;
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
  storage.evaluate.id = ParseInt(storage.evaluate.eval.model).value_or(0);
  return {Invocation{storage.global, Chosen(chosen.get_name(), storage)}, "", kExitOk};
}

}  // namespace meshwright::cli
