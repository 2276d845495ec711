// Trains a job on a virtual cluster for two steps and compares what came out of two such runs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/job.h"
#include "planner/plan.h"
#include "tests/virtual/virtual_cluster.h"

namespace meshwright::testing {

inline constexpr int kRunSteps = 2;

struct LayoutCase {
  int data = 1, tensor = 1, pipeline = 1, microbatches = 1;
  int devices() const { return data * tensor * pipeline; }
  std::string ToString() const;
};
ir::JobRequest WithLayout(ir::JobRequest job, const LayoutCase& layout);

struct RunResult {
  std::vector<double> losses;  // per step
  std::vector<double> norms;
  double validation = 0;
  std::map<std::string, LogicalTensor> tensors;  // weights and optimizer state
  planner::Plan plan;
};

// memory_bytes: of each device; 0: any.
Result<RunResult> RunJob(const ir::JobRequest& job, int devices, int vocabulary,
                         int64_t memory_bytes = 0);

// What RunJob does with a cluster that is there.
Result<RunResult> RunOn(VirtualCluster& cluster);

// Losses, norms, validation and every tensor, relative.
void ExpectEqual(const RunResult& expected, const RunResult& actual, double tolerance,
                 const std::string& layout);

}  // namespace meshwright::testing
