// The commands. Each returns the exit code of the process; results go to stdout, progress and
// errors to stderr.
#pragma once

#include "cli/args.h"
#include "config/job_config.h"
#include "mesh/topology.h"
#include "worker/host_actor_options.h"

namespace meshwright::cli {

int RunUp(const UpArgs& args, const GlobalArgs& global);
int RunDown(const DownArgs& args);
int RunSubmit(const SubmitArgs& args, const GlobalArgs& global);
int RunPredict(const PredictArgs& args, const GlobalArgs& global);
int RunGenerate(const GenerateArgs& args, const GlobalArgs& global);
int RunChat(const ChatArgs& args, const GlobalArgs& global);
int RunEmbed(const EmbedArgs& args, const GlobalArgs& global);
int RunEvaluate(const EvaluateArgs& args, const GlobalArgs& global);
int RunEvaluateOnData(const EvalArgs& args, const GlobalArgs& global);  // its part with --data
int RunCheckpoint(const CheckpointArgs& args, const GlobalArgs& global);
int RunJobs(const JobsArgs& args, const GlobalArgs& global);
int RunLogs(const LogsArgs& args, const GlobalArgs& global);
int RunCancel(const CancelArgs& args, const GlobalArgs& global);
int RunWorkerOrder(const WorkerOrderArgs& args, const GlobalArgs& global);
int RunPause(const PauseArgs& args, const GlobalArgs& global);
int RunResume(const ResumeArgs& args, const GlobalArgs& global);
int RunWait(const WaitArgs& args, const GlobalArgs& global);
int RunTimeline(const TimelineArgs& args, const GlobalArgs& global);
int RunWhy(const WhyArgs& args, const GlobalArgs& global);
int RunDescribe(const DescribeArgs& args, const GlobalArgs& global);
int RunCompletion(const CompletionArgs& args);
int RunComplete(const CompleteArgs& args, const GlobalArgs& global);
int RunDebugHang(const DebugArgs& args, const GlobalArgs& global);
// Logs of workers.
int RunWorkerLogs(const LogsArgs& args, const GlobalArgs& global);
int RunDoctor(const DoctorArgs& args, const GlobalArgs& global);
int RunRecords(const RecordsArgs& args, const GlobalArgs& global);
int RunCompare(const CompareArgs& args, const GlobalArgs& global);
int RunStatus(const StatusArgs& args, const GlobalArgs& global);
int RunPlan(const PlanArgs& args, const GlobalArgs& global);
int RunVisualize(const VisualizeArgs& args, const GlobalArgs& global);
int RunConfig(const ConfigArgs& args);
int RunSupportBundle(const SupportBundleArgs& args, const GlobalArgs& global);
int RunCert(const CertArgs& args, const GlobalArgs& global);
int RunAdapter(const AdapterArgs& args, const GlobalArgs& global);
int RunTokenizer(const TokenizerArgs& args, const GlobalArgs& global);

// In the binary only: they bring the servers with them.
// Planned as `plan` does, checked by the static verifier, and held against one device at a small
// size; kExitJobFailed: they differ.
int RunVerify(const VerifyArgs& args, const GlobalArgs& global);
int RunController(const ControllerArgs& args, const GlobalArgs& global);
// actors: that the binary has (worker/main.h).
int RunWorker(const WorkerArgs& args, const GlobalArgs& global,
              worker::HostActorOptions actors = {});

// Prints "error: ..." (and a hint where one is known) to stderr; returns the exit code.
int ReportError(const Status& status);
// What the configuration, or the model's config.json, says in vain: as "note: ..." to stderr.
void PrintNotes(const config::JobConfig& config);
void PrintNotes(const models::Model& model);
// A note to stderr where the saved plan in `file` was made for another job or, where there is one,
// another cluster. "": there is no saved plan. Errors: it cannot be read.
Status PrintForeignPlan(const std::string& file, const ir::JobRequest& job,
                        const mesh::Topology* topology);

}  // namespace meshwright::cli
