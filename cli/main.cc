// meshwright: parses, hands over to one command, returns its exit code.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/keeper.h"
#include "security/grpc/library_log.h"
#include "worker/executor_main.h"

namespace meshwright::cli {
namespace {

// Commands about jobs.
struct JobDispatch {
  const GlobalArgs& global;
  int operator()(const SubmitArgs& args) const { return RunSubmit(args, global); }
  int operator()(const PredictArgs& args) const { return RunPredict(args, global); }
  int operator()(const GenerateArgs& args) const { return RunGenerate(args, global); }
  int operator()(const ChatArgs& args) const { return RunChat(args, global); }
  int operator()(const EmbedArgs& args) const { return RunEmbed(args, global); }
  int operator()(const EvaluateArgs& args) const { return RunEvaluate(args, global); }
  int operator()(const CheckpointArgs& args) const { return RunCheckpoint(args, global); }
  int operator()(const JobsArgs& args) const { return RunJobs(args, global); }
  int operator()(const LogsArgs& args) const { return RunLogs(args, global); }
  int operator()(const CancelArgs& args) const { return RunCancel(args, global); }
  int operator()(const PauseArgs& args) const { return RunPause(args, global); }
  int operator()(const ResumeArgs& args) const { return RunResume(args, global); }
  int operator()(const WaitArgs& args) const { return RunWait(args, global); }
  int operator()(const TimelineArgs& args) const { return RunTimeline(args, global); }
  int operator()(const WhyArgs& args) const { return RunWhy(args, global); }
  int operator()(const DescribeArgs& args) const { return RunDescribe(args, global); }
  int operator()(const DebugArgs& args) const { return RunDebugHang(args, global); }
  int operator()(const RecordsArgs& args) const { return RunRecords(args, global); }
  int operator()(const CompareArgs& args) const { return RunCompare(args, global); }
};

// And all others.
struct Dispatch : JobDispatch {
  using JobDispatch::operator();
  int operator()(const ControllerArgs& args) const { return RunController(args, global); }
  int operator()(const WorkerArgs& args) const { return RunWorker(args, global); }
  int operator()(const WorkerOrderArgs& args) const { return RunWorkerOrder(args, global); }
  int operator()(const UpArgs& args) const { return RunUp(args, global); }
  int operator()(const DownArgs& args) const { return RunDown(args); }
  int operator()(const DoctorArgs& args) const { return RunDoctor(args, global); }
  int operator()(const StatusArgs& args) const { return RunStatus(args, global); }
  int operator()(const PlanArgs& args) const { return RunPlan(args, global); }
  int operator()(const VerifyArgs& args) const { return RunVerify(args, global); }
  int operator()(const VisualizeArgs& args) const { return RunVisualize(args, global); }
  int operator()(const ConfigArgs& args) const { return RunConfig(args); }
  int operator()(const TokenizerArgs& args) const { return RunTokenizer(args, global); }
  int operator()(const AdapterArgs& args) const { return RunAdapter(args, global); }
  int operator()(const CompletionArgs& args) const { return RunCompletion(args); }
  int operator()(const CompleteArgs& args) const { return RunComplete(args, global); }
  int operator()(const SupportBundleArgs& args) const { return RunSupportBundle(args, global); }
  int operator()(const CertArgs& args) const { return RunCert(args, global); }
};

int Main(const std::vector<std::string>& args) {
  const ParsedArgs parsed = ParseArgs(args);
  if (!parsed.invocation) {
    std::fputs(parsed.text.c_str(), parsed.exit_code == kExitOk ? stdout : stderr);
    return parsed.exit_code;
  }
  return std::visit(Dispatch{{parsed.invocation->global}}, parsed.invocation->command);
}

}  // namespace
}  // namespace meshwright::cli

int main(int argc, char** argv) {
  try {
    meshwright::security::TakeGrpcLog();
    // The process of a mesh, which a worker started from this binary.
    if (const auto code = meshwright::worker::RunIfExecutor(argc, argv)) return *code;
    const std::vector<std::string> args(argv + 1, argv + argc);
    if (const auto code = meshwright::cli::RunIfKeeper(args)) return *code;
    return meshwright::cli::Main(args);
  } catch (const std::exception& e) {
    fmt::print(stderr, "internal error: {}\n", e.what());
    return meshwright::cli::kExitJobFailed;
  }
}
