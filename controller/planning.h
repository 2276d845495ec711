// From a request and free devices to what the core needs: runs the planner, stores the programs as
// blobs, writes plan.txt.
//
// Thread rule: runs on the planner thread; may take minutes. Pure apart from the blobs and the
// job's folder. Two threads may plan at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "controller/blob_store.h"
#include "controller/events.h"
#include "planner/plan.h"

namespace meshwright::controller {

using PlanFunction =
    std::function<Result<planner::Plan>(const ir::JobRequest&, const mesh::Topology&)>;

// A plan that a job is to run by, for who draws it; ahead: that it may run by, with fewer devices.
struct MadePlan {
  JobId job{0};
  bool ahead = false;
  std::string job_dir;
  std::shared_ptr<const ir::JobRequest> request;  // that it was made for
  std::shared_ptr<const planner::Plan> plan;
  mesh::Topology topology;
};
using PlanListener = std::function<void(MadePlan)>;  // called on a planner's thread; does not block

// Where people find the plan. ahead: beside that of the run, under its number of devices.
struct PlanFiles {
  std::string job_dir;
  bool ahead = false;
  PlanListener listener = nullptr;  // told once the files are written
  JobId job{0};                     // for the listener
};

// Errors: the planner's; those of writing. Sets `misfit` when it is the planner who says that the
// job does not fit the devices: a full disk has the same code.
Result<PlannedJob> PlanJob(const PlanFunction& make_plan, const ir::JobRequest& job,
                           const mesh::Topology& topology, BlobStore& blobs, const PlanFiles& files,
                           bool& misfit);

// Rows of the largest embedding table: tokens are below it. 0: the graph has none.
int64_t VocabularyOf(const ir::Graph& loss);

}  // namespace meshwright::controller
