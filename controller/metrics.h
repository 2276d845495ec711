// The controller's metrics. Labels are bounded:
// per job a dozen series, removed some time after its end. Thread rule: thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/metrics.h"
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
  void ObservePlan(double seconds);
  void ObserveCommit(double seconds);
  // slow_ranks: by how much; 0: no longer.
  void SetHealth(int64_t job, bool stalled, const std::map<int, double>& slow_ranks);
  void SetStepFigures(const StepFigures& figures);
  void Count(int64_t job, JobCount what);
  void CountFault(const std::string& kind);
  void ObserveRpc(const std::string& service, const std::string& method, StatusCode code,
                  double seconds);
  void ForgetJob(int64_t job);

 private:
  MetricsRegistry& registry_;
  std::map<std::string, int64_t> message_totals_;  // used on the control loop only
};

}  // namespace meshwright::controller
