// Cluster: what the page sees of a controller and what it may ask of it. The seam at which tests
// put a cluster of their own.
//
// Thread rule: thread-safe; every call waits for the control loop for 2 s at most.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "controller/core_view.h"
#include "controller/site.h"
#include "controller/store.h"
#include "controller/worker_logs.h"
#include "proto/views.h"

namespace meshwright::web {

enum class JobOrder : uint8_t { kStop, kPause, kResume, kCheckpoint };

struct ClusterState {
  std::string cluster_id;
  uint64_t term = 0;
  std::vector<proto::JobInfo> jobs;  // newest first
  std::vector<proto::WorkerInfo> workers;
  std::map<std::string, std::vector<int64_t>> device_jobs;                // by worker; 0: free
  std::map<std::string, std::vector<controller::DeviceRun>> device_runs;  // by worker
};

struct StepsNews {
  std::vector<proto::StepMetrics> steps;
  int64_t next = 0;        // the number of the record behind them
  bool caught_up = false;  // nothing more for now
};

class Cluster {
 public:
  virtual ~Cluster() = default;
  // Errors: kUnavailable: the control loop does not answer. Of a job also kNotFound.
  virtual Result<ClusterState> Look() = 0;
  // The same without what devices have, and of workers what a tile shows: cheap enough for each
  // second.
  virtual Result<ClusterState> Tiles() = 0;
  virtual Result<proto::JobInfo> Job(int64_t job) = 0;
  virtual Result<controller::JobStory> Story(int64_t job) = 0;
  // Records of a job's steps from number `from` on, over all of its runs.
  virtual Result<StepsNews> Steps(int64_t job, int64_t from) = 0;
  // The newest `most` events, oldest first; of a job, or of all (0).
  virtual Result<std::vector<controller::EventRecord>> Events(int64_t job, int64_t most) = 0;
  // The end of a file in the job's folder, at most so many bytes. Errors: kNotFound.
  virtual Result<std::string> FileEnd(int64_t job, const std::string& name, int64_t most) = 0;
  // A piece of a worker's log, or of what is kept of it. Errors: kNotFound.
  virtual Result<controller::LogAnswer> WorkerLog(const controller::LogQuestion& question) = 0;
  // Where the devices of a job are, as JSON.
  virtual Result<std::string> Hang(int64_t job) = 0;
  // Errors: those of the order, for people.
  virtual Status Order(int64_t job, JobOrder order) = 0;
};

std::unique_ptr<Cluster> ClusterOf(const controller::SiteParts& parts);

}  // namespace meshwright::web
