// What people see of the core.
//
// Thread rule: pure functions, between steps.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "controller/core_state.h"
#include "proto/views.h"

namespace meshwright::controller {

proto::JobInfo InfoOf(const JobEntry& job, const CoreOptions& options);
std::vector<proto::WorkerInfo> InfoOf(const Membership& members, Now now);
// Of each worker its name, host, state, note and devices alone: what is looked at each second.
std::vector<proto::WorkerInfo> TilesOf(const Membership& members);

// What a job has been through, and where it is.
struct JobStory {
  int runs = 0;                  // that were begun by this controller
  int64_t recoveries = 0;        // within the last day
  std::vector<RankPlace> ranks;  // the devices of its run; none: it has none
};
JobStory StoryOf(const JobEntry& job);
// By worker, the job of each of its devices; 0: free.
std::map<std::string, std::vector<int64_t>> DeviceJobsOf(const Membership& members);

// What a device of a worker has been given to run.
struct DeviceRun {
  int device = 0;  // of the worker
  JobId job{0};
  int rank = 0;
  int stage = 0;
  std::map<std::string, int64_t> programs;  // by name, their instructions; empty: not known
};
// By worker, those of its devices that are part of a mesh.
std::map<std::string, std::vector<DeviceRun>> DeviceRunsOf(const LiveMeshes& meshes);

std::map<std::string, int64_t> CountStates(const JobBook& book);        // by name, every state
std::map<std::string, int64_t> CountStates(const Membership& members);  // likewise
// What the job reads and its mesh runs.
std::set<std::string> BlobsOf(const JobEntry& job, const CoreState& core);
// What jobs that have not ended read, and what all meshes run.
std::set<std::string> BlobsInUse(const CoreState& core);

}  // namespace meshwright::controller
