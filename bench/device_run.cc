#include "bench/device_run.h"

#include <utility>

#include "base/philox.h"
#include "config/job_config.h"
#include "mesh/topology.h"

namespace meshwright::bench {

Status RandomTokens::ReadSample(const std::string& source, int64_t sample, std::span<int32_t> row) {
  const uint64_t stream = StreamOf(source);
  for (size_t i = 0; i < row.size(); ++i) {
    const uint32_t bits = PhiloxBits(1, stream, static_cast<uint64_t>(sample), i);
    row[i] = static_cast<int32_t>(static_cast<int64_t>(bits) % vocabulary_);
  }
  return OkStatus();
}

Result<PlannedRun> PlanRun(const DeviceRunOptions& options) {
  MW_ASSIGN_OR_RETURN(const config::JobConfig config,
                      config::LoadJobConfig(options.job_file, options.overrides));
  MW_ASSIGN_OR_RETURN(const config::PreparedJob prepared, config::PrepareJob(config));
  PlannedRun planned;
  planned.vocabulary = prepared.model.vocabulary;
  planned.seed = prepared.request.train.seed;
  planned.compute_dtype = prepared.request.train.compute_dtype;
  MW_ASSIGN_OR_RETURN(planned.plan, planner::MakePlan(prepared.request, mesh::Topology::Local(1)));
  return planned;
}

Result<std::unique_ptr<DeviceRun>> DeviceRun::Start(const DeviceRunOptions& options) {
  MW_ASSIGN_OR_RETURN(PlannedRun planned, PlanRun(options));
  std::unique_ptr<DeviceRun> run(new DeviceRun(planned.vocabulary));
  run->plan_ = std::move(planned.plan);
  worker::RuntimeOptions runtime;
  runtime.programs = {run->plan_.Of("init")[0], run->plan_.Of("step")[0]};
  runtime.fabric.cluster_id = "bench";
  runtime.fabric.members.push_back({"local", "", "host", 1});
  runtime.fabric.local_ranks.push_back(0);
  runtime.feed = &run->tokens_;
  runtime.seed = planned.seed;
  runtime.threads_per_device = options.threads;
  runtime.observer = options.observer;
  runtime.gpus = options.gpus;
  MW_ASSIGN_OR_RETURN(run->runtime_, worker::JobRuntime::Load(std::move(runtime)));
  MW_TRY(run->runtime_->Connect({""}));
  MW_TRY(run->runtime_->Launch({"init", 0, 1}));
  return run;
}

Result<std::vector<double>> DeviceRun::Step(int64_t count, bool record) {
  MW_ASSIGN_OR_RETURN(
      const std::vector<worker::StepReport> reports,
      runtime_->Launch({"step", next_step_, count, {next_step_, record ? count : 0}}));
  next_step_ += count;
  std::vector<double> seconds;
  for (const worker::StepReport& report : reports) seconds.push_back(report.seconds);
  return seconds;
}

}  // namespace meshwright::bench
