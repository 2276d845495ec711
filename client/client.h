// The user's library: submit a job, watch it, cancel it.
//
// A program writes its model with client/trainer.h (collate, loss, predict on the graph builder) or
// takes one from models/, makes an ir::JobRequest and hands it to a Client. No gRPC type appears
// here. Thread rule: thread-safe. Every call has a deadline (10 s unless said).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/job.h"

namespace meshwright::client {

enum class JobState : uint8_t {
  kQueued,
  kPlanning,
  kStarting,
  kRunning,
  kSucceeded,
  kFailed,
  kCancelled
};
const char* JobStateName(JobState state);  // "QUEUED", ...
bool IsTerminal(JobState state);

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

struct JobInfo {
  int64_t id = 0;
  std::string name;
  JobState state = JobState::kQueued;
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
};

struct WorkerInfo {
  std::string name;
  std::string host;
  std::string state;  // READY, LOST, ...
  int devices = 0;
  int busy_devices = 0;
  int64_t memory_bytes = 0;
  std::string address;
  std::string metrics_address;
  double last_seen_s = 0;
  std::string device_profile;  // of each device, as text (mesh/device_profile.h); empty: not known
  int threads_per_device = 0;  // 0: not known
  int host_cores = 0;          // that the host's devices share; 0: not known
  std::string device_kind;     // "cpu", "cuda"
  std::string device_name;     // "NVIDIA H200"; empty: not said
};

struct JobUpdate {
  JobInfo info;
  std::vector<StepMetrics> steps;      // new since the last update
  std::vector<std::string> log_lines;  // new events, for people
};

class Client {
 public:
  virtual ~Client() = default;
  struct Options {
    std::string address;  // empty: $MESHWRIGHT_ADDRESS, else 127.0.0.1:7700
    std::string token;    // empty: $MESHWRIGHT_TOKEN, else none
    int64_t timeout_ms = 10'000;
    // A call without a deadline of its own (Watch) asks a silent controller this often whether it
    // is there, and fails when it does not answer within half of that.
    int64_t keepalive_ms = 10'000;
  };
  // Errors: kUnavailable naming the address and how to start a controller; kUnauthenticated.
  static Result<std::unique_ptr<Client>> Connect(Options options);

  // Content-addressed upload of a file; a known hash is not sent again.
  virtual Result<ir::BlobRef> UploadFile(const std::string& path) = 0;
  virtual Result<int64_t> Submit(const ir::JobRequest& job) = 0;
  virtual Result<JobInfo> Get(int64_t job_id) = 0;
  virtual Result<std::vector<JobInfo>> List() = 0;
  virtual Status Cancel(int64_t job_id) = 0;
  // Calls `on_update` until the job is terminal, the callback returns false or timeout_ms passes
  // (0: no limit); returns what was known last, so after timeout_ms a job that is not terminal.
  // Errors: kNotFound; kUnavailable when the controller goes away; kDeadlineExceeded when it told
  // nothing at all.
  virtual Result<JobInfo> Watch(int64_t job_id,
                                const std::function<bool(const JobUpdate&)>& on_update,
                                int64_t timeout_ms = 0) = 0;
  virtual Result<JobInfo> Wait(int64_t job_id, int64_t timeout_ms) = 0;
  // Event and log lines of a job, oldest first.
  virtual Result<std::vector<std::string>> Logs(int64_t job_id) = 0;
  virtual Result<std::vector<WorkerInfo>> Workers() = 0;
};

}  // namespace meshwright::client
