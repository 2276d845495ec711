#include "controller/metrics.h"

#include <algorithm>
#include <cmath>

namespace meshwright::controller {
namespace {

std::string SnakeCase(std::string_view name) {
  std::string snake;
  for (char c : name) {
    if (c >= 'A' && c <= 'Z') {
      if (!snake.empty()) snake += '_';
      snake += static_cast<char>(c - 'A' + 'a');
    } else {
      snake += c == ' ' ? '_' : c;
    }
  }
  return snake;
}

std::string LowerCase(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

const std::vector<double>& StepBuckets() {
  static const std::vector<double> buckets = ExponentialBuckets(0.005, 2, 18);
  return buckets;
}
const std::vector<double>& RpcBuckets() {
  static const std::vector<double> buckets = ExponentialBuckets(0.0005, 2.7, 11);
  return buckets;
}
const std::vector<double>& PlanBuckets() {
  static const std::vector<double> buckets = ExponentialBuckets(0.01, 3, 12);
  return buckets;
}

// Counters by job: those of JobCount, and those of steps.
struct JobCounter {
  const char* name;
  const char* help;
};
constexpr JobCounter kCheckpoints = {"meshwright_checkpoints_total",
                                     "Checkpoints that were written."};
constexpr JobCounter kCheckpointFailures = {"meshwright_checkpoint_failures_total",
                                            "Checkpoints that could not be written."};
constexpr JobCounter kRecoveries = {"meshwright_recoveries_total",
                                    "Times that the job went on after a failure or a move."};
constexpr JobCounter kSteps = {"meshwright_steps_total", "Training steps done."};
constexpr JobCounter kTokens = {"meshwright_tokens_total", "Tokens trained on."};
constexpr JobCounter kModelFlops = {
    "meshwright_model_flops_total",
    "Floating-point operations of the model's steps, without what is computed again."};

const JobCounter& CounterOf(JobCount what) {
  switch (what) {
    case JobCount::kCheckpoint:
      return kCheckpoints;
    case JobCount::kFailedCheckpoint:
      return kCheckpointFailures;
    case JobCount::kRecovery:
      break;
  }
  return kRecoveries;
}

Counter CounterIn(MetricsRegistry& registry, const JobCounter& counter, int64_t job) {
  return registry.MakeCounter(counter.name, counter.help, {{"job_id", std::to_string(job)}});
}

Counter FaultsIn(MetricsRegistry& registry, const std::string& kind) {
  return registry.MakeCounter("meshwright_faults_total", "Jobs that failed, by kind of cause.",
                              {{"kind", SnakeCase(kind)}});
}

// Every kind, with 0.
void OpenFaults(MetricsRegistry& registry) {
  for (int kind = 1; kind <= static_cast<int>(proto::ErrorKind::kQueueTimeout); ++kind) {
    FaultsIn(registry, proto::ErrorKindName(static_cast<proto::ErrorKind>(kind)));
  }
}

// What a job's devices do of what they reach.
void SetUseIn(MetricsRegistry& registry, int64_t job, double flops_per_s, double peak_flops_per_s) {
  if (!(flops_per_s > 0) || !(peak_flops_per_s > 0)) return;
  const MetricLabels labels = {{"job_id", std::to_string(job)}};
  registry
      .MakeGauge("meshwright_mfu_ratio",
                 "Model FLOPs of the last steps over what the job's devices reach together.",
                 labels)
      .Set(flops_per_s / peak_flops_per_s);
  registry
      .MakeGauge("meshwright_job_peak_flops_per_second",
                 "What a job's devices reach together in the type of its products.", labels)
      .Set(peak_flops_per_s);
}

Gauge StalledIn(MetricsRegistry& registry, int64_t job) {
  return registry.MakeGauge("meshwright_job_stalled",
                            "1 while nothing of the job moves, 0 when it does again.",
                            {{"job_id", std::to_string(job)}});
}

}  // namespace

ControllerMetrics::ControllerMetrics(MetricsRegistry& registry) : registry_(registry) {
  registry_
      .MakeGauge("meshwright_build_info", "Always 1; the labels say what is running.",
                 {{"version", proto::kVersion}, {"role", "controller"}})
      .Set(1);
  OpenFaults(registry_);
}

void ControllerMetrics::OpenJob(int64_t job) {
  for (const JobCounter& counter :
       {kCheckpoints, kCheckpointFailures, kRecoveries, kSteps, kTokens, kModelFlops}) {
    CounterIn(registry_, counter, job);
  }
  StalledIn(registry_, job);
}

void ControllerMetrics::SetPlan(int64_t job, double flops_per_step, double peak_flops_per_s) {
  const MutexLock lock(mutex_);
  speeds_[job] = {flops_per_step, peak_flops_per_s};
}

void ControllerMetrics::ObserveSpeed(int64_t job, size_t steps, double seconds) {
  const MutexLock lock(mutex_);
  const auto speed = speeds_.find(job);
  if (speed == speeds_.end()) return;
  const double flops = speed->second.flops_per_step * static_cast<double>(steps);
  CounterIn(registry_, kModelFlops, job).Increment(flops);
  if (seconds > 0) SetUseIn(registry_, job, flops / seconds, speed->second.peak_flops_per_s);
}

void ControllerMetrics::SetWorkers(const std::map<std::string, int64_t>& by_state) {
  for (const auto& [state, count] : by_state) {
    registry_
        .MakeGauge("meshwright_workers", "Workers known to the controller, by state.",
                   {{"state", LowerCase(state)}})
        .Set(static_cast<double>(count));
  }
}

void ControllerMetrics::SetJobs(const std::map<std::string, int64_t>& by_state) {
  for (const auto& [state, count] : by_state) {
    registry_
        .MakeGauge("meshwright_jobs", "Jobs in the controller's history, by state.",
                   {{"state", LowerCase(state)}})
        .Set(static_cast<double>(count));
  }
}

void ControllerMetrics::SetMessages(const std::map<std::string, int64_t>& totals) {
  for (const auto& [kind, total] : totals) {
    int64_t& known = message_totals_[kind];
    if (total == known) continue;
    registry_
        .MakeCounter("meshwright_control_messages_total",
                     "Control messages between controller and workers, both ways, by kind.",
                     {{"kind", SnakeCase(kind)}})
        .Increment(static_cast<double>(total - known));
    known = total;
  }
}

void ControllerMetrics::SetTerm(uint64_t term) {
  registry_.MakeGauge("meshwright_term", "Term of this controller; rises with every start.")
      .Set(static_cast<double>(term));
}

void ControllerMetrics::ObserveSteps(int64_t job, const std::vector<proto::StepMetrics>& steps,
                                     int64_t unix_ms) {
  if (steps.empty()) return;
  const MetricLabels labels = {{"job_id", std::to_string(job)}};
  Histogram seconds = registry_.MakeHistogram("meshwright_step_seconds",
                                              "Wall time of a training step on its slowest worker.",
                                              StepBuckets(), labels);
  Counter tokens = CounterIn(registry_, kTokens, job);
  double sum_s = 0;
  for (const proto::StepMetrics& step : steps) {
    seconds.Observe(step.seconds);
    tokens.Increment(step.tokens);
    sum_s += step.seconds;
    if (std::isnan(step.validation_loss)) continue;
    registry_
        .MakeGauge("meshwright_validation_loss", "Mean loss per token of the validation data.",
                   labels)
        .Set(step.validation_loss);
  }
  const proto::StepMetrics& last = steps.back();
  CounterIn(registry_, kSteps, job).Increment(static_cast<double>(steps.size()));
  ObserveSpeed(job, steps.size(), sum_s);
  registry_.MakeGauge("meshwright_loss", "Mean loss per token of the last step.", labels)
      .Set(last.loss);
  registry_.MakeGauge("meshwright_grad_norm", "Global gradient norm of the last step.", labels)
      .Set(last.grad_norm);
  registry_.MakeGauge("meshwright_learning_rate", "Learning rate of the last step.", labels)
      .Set(last.lr);
  registry_
      .MakeGauge("meshwright_job_last_step_timestamp_seconds", "When the last step was reported.",
                 labels)
      .Set(static_cast<double>(unix_ms) / 1000.0);
}

void ControllerMetrics::SetStepFigures(const StepFigures& figures) {
  const std::string job = std::to_string(figures.job.value());
  const auto set_parts = [&](const char* source, double step_s,
                             const std::map<std::string, double>& parts) {
    registry_
        .MakeGauge(
            "meshwright_recorded_step_seconds",
            "A step of the job's newest recorded ones, as measured and as its plan forecast.",
            {{"job_id", job}, {"source", source}})
        .Set(step_s);
    for (const auto& [part, seconds] : parts) {
      registry_
          .MakeGauge("meshwright_step_part_seconds",
                     "Parts of such a step on the mean device: compute, input, exposed "
                     "communication and what it waits for.",
                     {{"job_id", job}, {"part", part}, {"source", source}})
          .Set(seconds);
    }
  };
  set_parts("measured", figures.measured_s, figures.measured_parts);
  set_parts("forecast", figures.forecast_s, figures.forecast_parts);
}

void ControllerMetrics::ObservePlan(double seconds) {
  registry_
      .MakeHistogram("meshwright_plan_seconds", "Time to plan a job, by phase.", PlanBuckets(),
                     {{"phase", "lower"}})
      .Observe(seconds);
}

void ControllerMetrics::ObserveCommit(double seconds) {
  registry_
      .MakeHistogram("meshwright_store_commit_seconds", "Time of one durable write of the state.",
                     RpcBuckets())
      .Observe(seconds);
}

void ControllerMetrics::SetHealth(int64_t job, bool stalled,
                                  const std::map<int, double>& slow_ranks) {
  const std::string id = std::to_string(job);
  StalledIn(registry_, job).Set(stalled ? 1 : 0);
  for (const auto& [rank, ratio] : slow_ranks) {
    registry_
        .MakeGauge("meshwright_slow_rank",
                   "Time that a rank takes for its own work over that of its peers, while it is "
                   "named as slow; else 0.",
                   {{"job_id", id}, {"rank", std::to_string(rank)}})
        .Set(ratio);
  }
}

void ControllerMetrics::Count(int64_t job, JobCount what, int64_t unix_ms) {
  CounterIn(registry_, CounterOf(what), job).Increment();
  if (what != JobCount::kCheckpoint) return;
  registry_
      .MakeGauge("meshwright_checkpoint_last_success_timestamp_seconds",
                 "When the job's last checkpoint was written.", {{"job_id", std::to_string(job)}})
      .Set(static_cast<double>(unix_ms) / 1000.0);
}

void ControllerMetrics::CountFault(const std::string& kind) {
  FaultsIn(registry_, kind).Increment();
}

void ControllerMetrics::ObserveRpc(const std::string& service, const std::string& method,
                                   StatusCode code, double seconds) {
  registry_
      .MakeHistogram(
          "meshwright_rpc_server_seconds", "Time to answer a call.", RpcBuckets(),
          {{"service", service}, {"method", method}, {"code", SnakeCase(StatusCodeName(code))}})
      .Observe(seconds);
}

void ControllerMetrics::ForgetJob(int64_t job) {
  registry_.RemoveSeries({{"job_id", std::to_string(job)}});
  const MutexLock lock(mutex_);
  speeds_.erase(job);
}

}  // namespace meshwright::controller
