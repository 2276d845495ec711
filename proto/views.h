// Jobs and workers as people see them: what Get, List, Watch and Workers answer.
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace meshwright::proto {

enum class JobState : uint8_t {
  kUnspecified = 0,
  kQueued = 1,
  kPlanning = 2,
  kStarting = 3,
  kRunning = 4,
  kSucceeded = 5,
  kFailed = 6,
  kCancelled = 7,
};
inline constexpr int kJobStateCount = 8;
const char* JobStateName(JobState state);  // "QUEUED", ...
bool IsTerminal(JobState state);

struct JobInfo {
  int64_t id = 0;
  std::string name;
  JobState state = JobState::kUnspecified;
  std::string reason;
  std::string message;
  int64_t steps_done = 0;
  int64_t steps = 0;
  double loss = 0;
  std::string layout;
  std::string directory;
  int64_t submitted_unix_ms = 0, started_unix_ms = 0, ended_unix_ms = 0;
  int64_t device_memory_bytes = 0;
  int64_t device_budget_bytes = 0;
  friend bool operator==(const JobInfo&, const JobInfo&) = default;
};

struct StepMetrics {
  int64_t step = 0;
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  double tokens = 0;
  double seconds = 0;
  double validation_loss = 0;                 // NaN when this step was not validated
  std::map<std::string, double> values = {};  // what the job's own programs report besides
};

struct JobUpdate {
  JobInfo info;
  std::vector<StepMetrics> steps;
  std::vector<std::string> log_lines;
};

struct WorkerInfo {
  std::string name;
  std::string host;
  std::string state;
  int32_t devices = 0;
  int32_t busy_devices = 0;
  int64_t memory_bytes = 0;
  std::string address;
  std::string metrics_address;
  double last_seen_s = 0;
  std::string device_profile;  // text of mesh/device_profile.h; empty: not measured
  int32_t threads_per_device = 0;
  int32_t host_cores = 0;  // that all workers of the host together may use
  std::string device_kind;
  std::string device_name;
};

}  // namespace meshwright::proto
