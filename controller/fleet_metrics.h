// FleetMetrics: what there is of jobs and workers, as series that are set when somebody scrapes.
//
// A job is known by its number (label job_id) and has an info series with its name; a worker by its
// name (label worker). Series of a job go kJobSeriesMs after its end, those of a worker when the
// controller forgets it. Counters of a job are there, with 0, from its submission on
// (ControllerMetrics::OpenJob).
//
// Thread rule: thread-safe. Ownership: the registry and the metrics outlive it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/metrics.h"
#include "base/mutex.h"
#include "controller/metrics.h"
#include "proto/views.h"

namespace meshwright::controller {

// How long after its end a job has series.
inline constexpr int64_t kJobSeriesMs = 300'000;

struct FleetView {
  int64_t now_unix_ms = 0;
  std::vector<proto::JobInfo> jobs;
  std::vector<proto::WorkerInfo> workers;
  std::map<std::string, std::vector<int64_t>> device_jobs = {};  // by worker; 0: free
};

class FleetMetrics {
 public:
  FleetMetrics(MetricsRegistry& registry, ControllerMetrics& metrics)
      : registry_(registry), metrics_(metrics) {}

  void Observe(const FleetView& view);

 private:
  void ObserveJob(const proto::JobInfo& job, int64_t now_unix_ms, int64_t devices)
      MW_REQUIRES(mutex_);
  void SetEnd(const proto::JobInfo& job);
  void ObserveWorker(const proto::WorkerInfo& worker) MW_REQUIRES(mutex_);
  void ObserveDevices(const std::vector<proto::WorkerInfo>& workers);
  void SetInfo(const std::string& name, const std::string& help, const std::string& key,
               const MetricLabels& labels) MW_REQUIRES(mutex_);

  MetricsRegistry& registry_;
  ControllerMetrics& metrics_;
  Mutex mutex_;
  std::set<int64_t> jobs_ MW_GUARDED_BY(mutex_);         // that have series
  std::set<std::string> workers_ MW_GUARDED_BY(mutex_);  // likewise
  // Of a job's or a worker's info, as it is now.
  std::map<std::string, MetricLabels> infos_ MW_GUARDED_BY(mutex_);
};

}  // namespace meshwright::controller
