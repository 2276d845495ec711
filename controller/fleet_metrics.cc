#include "controller/fleet_metrics.h"

#include <algorithm>

#include "controller/states.h"

namespace meshwright::controller {
namespace {

std::string InLowerCase(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

double SecondsOfMs(int64_t ms) { return static_cast<double>(ms) / 1e3; }

// Series of the job's or the worker's own, by one label.
class SeriesOf {
 public:
  SeriesOf(MetricsRegistry& registry, MetricLabels labels)
      : registry_(registry), labels_(std::move(labels)) {}
  void Set(const char* name, const char* help, double value) const {
    registry_.MakeGauge(name, help, labels_).Set(value);
  }
  // One series per state, of which one is 1.
  void SetState(const char* name, const char* help, const std::vector<std::string>& states,
                const std::string& now) const {
    MetricLabels labels = labels_;
    for (const std::string& state : states) {
      labels["state"] = InLowerCase(state);
      registry_.MakeGauge(name, help, labels).Set(state == now ? 1 : 0);
    }
  }

 private:
  MetricsRegistry& registry_;
  const MetricLabels labels_;
};

std::vector<std::string> JobStates() {
  std::vector<std::string> names;
  for (int i = 1; i < proto::kJobStateCount; ++i) {
    names.emplace_back(proto::JobStateName(static_cast<proto::JobState>(i)));
  }
  return names;
}

std::vector<std::string> WorkerStates() {
  std::vector<std::string> names;
  for (int i = 0; i < kWorkerStateCount; ++i) {
    names.emplace_back(Name(static_cast<WorkerState>(i)));
  }
  return names;
}

bool HasSeries(const proto::JobInfo& job, int64_t now_unix_ms) {
  return job.ended_unix_ms == 0 || now_unix_ms - job.ended_unix_ms < kJobSeriesMs;
}

std::map<int64_t, int64_t> DevicesByJob(const FleetView& view) {
  std::map<int64_t, int64_t> devices;
  for (const auto& [worker, jobs] : view.device_jobs) {
    for (const int64_t job : jobs) ++devices[job];
  }
  return devices;
}

}  // namespace

void FleetMetrics::Observe(const FleetView& view) {
  const MutexLock lock(mutex_);
  std::map<int64_t, int64_t> devices = DevicesByJob(view);
  std::set<int64_t> jobs;
  for (const proto::JobInfo& job : view.jobs) {
    if (!HasSeries(job, view.now_unix_ms)) continue;
    jobs.insert(job.id);
    ObserveJob(job, view.now_unix_ms, devices[job.id]);
  }
  for (const int64_t gone : jobs_) {
    if (jobs.count(gone) != 0) continue;
    metrics_.ForgetJob(gone);
    infos_.erase("job " + std::to_string(gone));
  }
  jobs_ = std::move(jobs);

  std::set<std::string> workers;
  for (const proto::WorkerInfo& worker : view.workers) {
    workers.insert(worker.name);
    ObserveWorker(worker);
  }
  for (const std::string& gone : workers_) {
    if (workers.count(gone) != 0) continue;
    registry_.RemoveSeries({{"worker", gone}});
    infos_.erase("worker " + gone);
  }
  workers_ = std::move(workers);
  ObserveDevices(view.workers);
}

// What an info says may change: then the series that said otherwise goes.
void FleetMetrics::SetInfo(const std::string& name, const std::string& help, const std::string& key,
                           const MetricLabels& labels) {
  MetricLabels& known = infos_[key];
  if (!known.empty() && known != labels) registry_.RemoveSeries(known);
  known = labels;
  registry_.MakeGauge(name, help, labels).Set(1);
}

void FleetMetrics::ObserveJob(const proto::JobInfo& job, int64_t now_unix_ms, int64_t devices) {
  const std::string id = std::to_string(job.id);
  if (!proto::IsTerminal(job.state)) metrics_.OpenJob(job.id);
  SetInfo("meshwright_job_info", "Always 1; the labels say what a job is called and how it runs.",
          "job " + id, {{"job_id", id}, {"name", job.name}, {"layout", job.layout}});
  static const std::vector<std::string> states = JobStates();
  const SeriesOf series(registry_, {{"job_id", id}});
  series.SetState("meshwright_job_state", "1 for the state that a job is in, 0 for the others.",
                  states, proto::JobStateName(job.state));
  series.Set("meshwright_job_steps", "Steps that a job is to do.", static_cast<double>(job.steps));
  series.Set("meshwright_job_steps_done",
             "Steps that a job has done; after a failure it may do some of them again.",
             static_cast<double>(job.steps_done));
  const int64_t begun = job.started_unix_ms > 0 ? job.started_unix_ms
                        : job.ended_unix_ms > 0 ? job.ended_unix_ms
                                                : now_unix_ms;
  series.Set("meshwright_job_queue_wait_seconds",
             "From a job's submission to its first start, or until now.",
             std::max(0.0, SecondsOfMs(begun - job.submitted_unix_ms)));
  series.Set("meshwright_job_devices", "Devices that a job has.", static_cast<double>(devices));
  if (job.device_budget_bytes > 0) {
    series.Set("meshwright_job_device_memory_bytes",
               "What the plan takes of the fullest device of a job.",
               static_cast<double>(job.device_memory_bytes));
    series.Set("meshwright_job_device_memory_limit_bytes", "What that device has.",
               static_cast<double>(job.device_budget_bytes));
  }
  if (job.checkpoint_step >= 0) {
    series.Set("meshwright_checkpoint_last_step", "Steps that are in the newest checkpoint.",
               static_cast<double>(job.checkpoint_step));
  }
  if (proto::IsTerminal(job.state)) SetEnd(job);
}

void FleetMetrics::SetEnd(const proto::JobInfo& job) {
  registry_
      .MakeGauge("meshwright_job_end_info", "Always 1; how a job has ended, and why.",
                 {{"job_id", std::to_string(job.id)},
                  {"state", InLowerCase(proto::JobStateName(job.state))},
                  {"reason", job.reason}})
      .Set(1);
}

void FleetMetrics::ObserveWorker(const proto::WorkerInfo& worker) {
  SetInfo("meshwright_worker_info", "Always 1; the labels say where a worker is and what it has.",
          "worker " + worker.name,
          {{"worker", worker.name},
           {"host", worker.host},
           {"device_kind", worker.device_kind},
           {"device_name", worker.device_name}});
  static const std::vector<std::string> states = WorkerStates();
  const SeriesOf series(registry_, {{"worker", worker.name}});
  series.SetState("meshwright_worker_state",
                  "1 for the state that a worker is in, 0 for the others.", states, worker.state);
  series.Set("meshwright_worker_heartbeat_age_seconds",
             "Since the controller has heard of a worker.", worker.last_seen_s);
  series.Set("meshwright_worker_devices", "Devices of a worker.", worker.devices);
  series.Set("meshwright_worker_busy_devices", "Devices of a worker that a job has.",
             worker.busy_devices);
  series.Set("meshwright_worker_memory_bytes", "Memory of each device of a worker.",
             static_cast<double>(worker.memory_bytes));
  series.Set("meshwright_worker_excluded",
             "1 while a worker gets no new work: an operator said so, or it failed too often.",
             worker.note.empty() ? 0 : 1);
}

void FleetMetrics::ObserveDevices(const std::vector<proto::WorkerInfo>& workers) {
  std::map<std::string, double> counts = {{"busy", 0}, {"free", 0}, {"unavailable", 0}};
  for (const proto::WorkerInfo& worker : workers) {
    const bool ready = worker.state == Name(WorkerState::kReady) && worker.note.empty();
    counts["busy"] += worker.busy_devices;
    counts[ready ? "free" : "unavailable"] += worker.devices - worker.busy_devices;
  }
  for (const auto& [state, count] : counts) {
    registry_
        .MakeGauge("meshwright_devices",
                   "Devices of all workers: a job has them, they are free, or get no work.",
                   {{"state", state}})
        .Set(count);
  }
}

}  // namespace meshwright::controller
