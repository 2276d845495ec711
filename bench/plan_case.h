// Plans that nothing runs: how long they take to find, what they are and what their step would be.
//
// A case is a job file with settings and a cluster, as `meshwright plan` takes them. For a cluster
// file programs are made for one device per stage; what the job pins is taken, everything else is
// found by search/find_layout.h. For a running cluster it is the plan that the controller would
// make, with what its workers measured.
//
// Thread rule: the caller's thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "mesh/device_profile.h"
#include "planner/plan.h"

namespace meshwright::bench {

struct PlanCaseOptions {
  std::string job_file;
  std::vector<std::string> overrides;  // as `meshwright plan --set`
  std::string cluster_file;            // or
  std::string address;                 // of a running cluster: as its controller would plan
  int64_t hosts = 0;                   // of the cluster's first group; 0: as the file says
  std::string profile;                 // of the first group's devices; empty: as the file says
  int64_t limit_ms = 10'000;           // of the search
};

struct PlanCase {
  double plan_s = 0;      // wall clock: layout found and programs made
  double plan_cpu_s = 0;  // the same, of this process: what else runs does not count
  double forecast_s = 0;  // wall clock
  int64_t devices = 0;    // of the cluster
  planner::Layout layout;
  double step_s = 0;
  double tokens_per_s = 0;
  double model_flops_utilization = 0;
  double hardware_flops_utilization = 0;
  // Where the mean device's step goes; the sum is step_s.
  std::array<double, mesh::kKernelClassCount> kernel_s = {};  // by what leads a fused kernel
  std::map<std::string, double> collective_s;                 // by mesh axes
  double waiting_s = 0;                                       // for stages and members
  double most_bytes = 0;                                      // of the fullest device
  double all_bytes = 0;                                       // of all devices that have a program
};

// Errors: as cli::LoadJobConfig, cli::LoadClusterFile, mesh::TopologyOfCluster, search::FindPlan,
// cli::PlanTopology.
Result<PlanCase> RunPlanCase(const PlanCaseOptions& options);

// One line of JSON; keys name their units.
std::string FormatPlanCase(const PlanCase& result);

}  // namespace meshwright::bench
