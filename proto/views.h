// Jobs and workers as people see them: what Get, List, Watch and Workers answer.
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ir/checkpoint_spec.h"
#include "ir/data_spec.h"

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
  kRecovering = 8,
  kPaused = 9,  // it has no devices and is not in the queue until somebody resumes it
};
inline constexpr int kJobStateCount = 10;
const char* JobStateName(JobState state);  // "QUEUED", ...
bool IsTerminal(JobState state);

// What an operator says of a worker. Numbers are those of the wire.
enum class WorkerOrder : uint8_t {
  kUnspecified = 0,
  kCordon = 1,    // it gets no new work
  kUncordon = 2,  // it does again
  kDrain = 3,     // its jobs are saved and go on elsewhere, too
  kEvict = 4,     // the same, at once
};

struct JobInfo {
  int64_t id = 0;
  std::string name;
  JobState state = JobState::kUnspecified;
  std::string reason;   // CamelCase, for machines: "WorkerLost", "NoCapacity"
  std::string message;  // for people: one clear cause
  int64_t steps_done = 0;
  int64_t steps = 0;
  double loss = 0;
  std::string layout;     // "data=2 tensor=1 pipeline=2 ..."
  std::string directory;  // on the controller's host: metrics.jsonl, model.safetensors, plan.txt
  int64_t submitted_unix_ms = 0, started_unix_ms = 0, ended_unix_ms = 0;
  // What the plan takes of the fullest device, and what that device has; 0 while unknown: before
  // planning and after a restart of the controller.
  int64_t device_memory_bytes = 0;
  int64_t device_budget_bytes = 0;
  // What its devices reach together in the type that its products compute in; 0 while unknown, and
  // where a device was not measured.
  double peak_flops_per_s = 0;
  int64_t checkpoint_step = -1;     // of the newest checkpoint; below 0: there is none
  ir::FolderRef checkpoint_folder;  // where its checkpoints are; path empty: it keeps none
  std::string tool;                 // whose session it is: "generate"; empty: somebody submitted it
  friend bool operator==(const JobInfo&, const JobInfo&) = default;
};

struct StepMetrics {
  int64_t step = 0;  // 0-based
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  double tokens = 0;  // of this step
  double seconds = 0;
  double validation_loss = 0;                 // NaN when this step was not validated
  std::map<std::string, double> values = {};  // what the job's own programs report besides
};

struct JobUpdate {
  JobInfo info;
  std::vector<StepMetrics> steps;      // new since the last update
  std::vector<std::string> log_lines;  // new events, for people
};

struct WorkerInfo {
  std::string name;
  std::string host;
  std::string state;  // READY, LOST, ...
  int32_t devices = 0;
  int32_t busy_devices = 0;
  int64_t memory_bytes = 0;
  std::string address;
  std::string metrics_address;
  double last_seen_s = 0;
  std::string device_profile;  // of each device, as text (mesh/device_profile.h); empty: not known
  int32_t threads_per_device = 0;  // 0: not known
  int32_t host_cores = 0;          // that all workers of the host together may use; 0: not known
  std::string device_kind;         // "cpu", "cuda"
  std::string device_name;         // "NVIDIA H200"; empty: not said
  std::vector<ir::DataRoot> data_roots = {};        // below which it reads files in place
  std::vector<ir::DataRoot> checkpoint_roots = {};  // below which it keeps checkpoints
  std::string note = {};                            // why it gets no work; empty: it does
  int64_t host_memory_bytes = 0;  // that its processes may take on its host; 0: not known
  int64_t disk_bytes = 0;         // that its jobs may have on its disk; 0: not known
  bool no_scratch_dir = false;    // they have no disk; false: they may
  std::string version = {};       // of its binary
};

}  // namespace meshwright::proto
