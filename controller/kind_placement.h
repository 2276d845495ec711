// Which kind of devices a job gets, and what of the cluster that depends on.
//
// Thread rule: pure functions of what the core knows.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "controller/membership.h"
#include "controller/placement.h"
#include "ir/job.h"

namespace meshwright::controller {

struct ClusterView {
  const Membership& members;
  std::vector<EndingDevice> ending;
  std::set<std::pair<std::string, int>> kept = {};  // by worker and index: free, for others
  // Of the free devices of a kind, so many may be taken; no entry: all.
  std::map<std::string, int64_t> most = {};
};

// Free devices of a kind that may be taken, in placement order.
std::vector<mesh::Device> FreeDevices(const ClusterView& cluster, const std::string& kind);

// The devices as the planner sees them.
mesh::Topology TopologyOf(std::vector<mesh::Device> devices, const Membership& members);

// On GPUs where the cluster has enough, busy or not, and they compute the job; else on CPU devices.
// GPUs that are not enough may be joined by others: `stable` once the cluster has not changed for a
// while.
Placement PlaceOnKind(const ClusterView& cluster, const ir::JobRequest& job, bool stable);

// All that placing asks of the cluster, but for which of its devices are free. Where two are equal,
// so are the answers.
std::string SightOf(const ClusterView& cluster, bool stable);

}  // namespace meshwright::controller
