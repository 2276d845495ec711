// The controller's metrics. Labels are bounded:
// per job a dozen series, removed some time after its end. Thread rule: thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/metrics.h"
#include "base/mutex.h"
#include "controller/events.h"
#include "controller/step_figures.h"
#include "proto/messages.h"

namespace meshwright::controller {

class ControllerMetrics {
 public:
  explicit ControllerMetrics(MetricsRegistry& registry);

  // Sets one gauge per state; a state that is absent keeps its value.
  void SetWorkers(const std::map<std::string, int64_t>& by_state);
  void SetJobs(const std::map<std::string, int64_t>& by_state);
  // Totals since the start, by message kind.
  void SetMessages(const std::map<std::string, int64_t>& totals);
  void SetTerm(uint64_t term);
  void ObserveSteps(int64_t job, const std::vector<proto::StepMetrics>& steps, int64_t unix_ms);
  // The counters of a job, with 0 where nothing has happened. Again: nothing.
  void OpenJob(int64_t job);
  // What its steps compute, and what its devices reach together; 0: not known.
  void SetPlan(int64_t job, double flops_per_step, double peak_flops_per_s);
  void ObservePlan(double seconds);
  void ObserveCommit(double seconds);
  // slow_ranks: by how much; 0: no longer.
  void SetHealth(int64_t job, bool stalled, const std::map<int, double>& slow_ranks);
  void SetStepFigures(const StepFigures& figures);
  // unix_ms: now.
  void Count(int64_t job, JobCount what, int64_t unix_ms);
  void CountFault(const std::string& kind);
  void ObserveRpc(const std::string& service, const std::string& method, StatusCode code,
                  double seconds);
  void ForgetJob(int64_t job);

 private:
  struct Speed {
    double flops_per_step = 0;
    double peak_flops_per_s = 0;
  };
  // What `seconds` for so many steps say of the job's use of its devices.
  void ObserveSpeed(int64_t job, size_t steps, double seconds);

  MetricsRegistry& registry_;
  Mutex mutex_;
  std::map<int64_t, Speed> speeds_ MW_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> message_totals_;  // used on the control loop only
};

}  // namespace meshwright::controller
