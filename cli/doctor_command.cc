// doctor: this machine, and the cluster at hand.
#include <fmt/format.h>

#include <cstdlib>
#include <memory>

#include "base/clock.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/connect.h"
#include "cli/doctor.h"
#include "client/inspector.h"
#include "proto/messages.h"

namespace meshwright::cli {
namespace {

// Of what the controller says, with its clock against the middle of the call.
Result<ClusterFacts> ClusterOf(client::Client::Options options, int64_t timeout_ms) {
  options.timeout_ms = timeout_ms;
  MW_ASSIGN_OR_RETURN(const auto inspector, client::Inspector::Make(options));
  MW_TRY(inspector->State());  // connects, which takes longer than a call
  const int64_t before_ms = SystemClock().UnixMs();
  MW_ASSIGN_OR_RETURN(const client::ControllerState state, inspector->State());
  const int64_t after_ms = SystemClock().UnixMs();
  ClusterFacts facts;
  facts.version = state.version;
  facts.round_trip_ms = after_ms - before_ms;
  facts.has_clock = state.unix_ms != 0;
  facts.skew_ms = state.unix_ms - (before_ms + after_ms) / 2;
  MW_ASSIGN_OR_RETURN(const auto client, client::Client::Connect(options));
  MW_ASSIGN_OR_RETURN(const auto workers, client->Workers());
  for (const client::WorkerInfo& worker : workers) {
    facts.workers.push_back({worker.name, worker.state, worker.address, worker.version});
  }
  return facts;
}

std::vector<std::string> FoldersOf(const DoctorArgs& args) {
  std::vector<std::string> folders;
  for (const std::string& folder : {args.state_dir, args.cache_dir, args.scratch_dir}) {
    if (!folder.empty()) folders.push_back(folder);
  }
  if (!folders.empty()) return folders;
  const char* const temporary = std::getenv("TMPDIR");
  return {temporary == nullptr ? "/tmp" : temporary};
}

}  // namespace

Result<std::vector<Check>> ExamineHere(const DoctorArgs& args, const GlobalArgs& global) {
  DoctorQuestion question;
  question.version = proto::kVersion;
  question.offline = args.offline;
  question.folders = FoldersOf(args);
  if (!global.token_file.empty()) question.secrets.push_back(global.token_file);
  const std::string key = args.state_dir + "/files.key";
  if (!args.state_dir.empty() && FileExists(key)) question.secrets.push_back(key);
  MW_ASSIGN_OR_RETURN(question.address, ResolveAddress(global, config::ProcessEnvironment));
  Machine machine = ThisMachine(args.timeout_ms);
  machine.cluster = [&]() -> Result<ClusterFacts> {
    MW_ASSIGN_OR_RETURN(client::Client::Options options, ClientOptions(global));
    return ClusterOf(std::move(options), args.timeout_ms);
  };
  return Examine(machine, question);
}

int RunDoctor(const DoctorArgs& args, const GlobalArgs& global) {
  const Result<std::vector<Check>> checks = ExamineHere(args, global);
  if (!checks.has_value()) return ReportError(checks.error());
  fmt::print("{}", global.json ? ChecksJson(*checks) : FormatChecks(*checks));
  return WorstOf(*checks) == CheckLevel::kFail ? kExitJobFailed : kExitOk;
}

}  // namespace meshwright::cli
