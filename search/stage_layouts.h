// Layouts whose stages differ: the stage search (search/stage_search.h) on the measured layers of a
// model and the devices of a cluster.
//
// A problem is of one number of microbatches: its options are all meshes (replicas x context x
// tensor group) that divide the rows of a microbatch, on all submeshes that the hosts of a class of
// devices have, with each way to recompute. Stages share rows among equally many devices; of its
// replicas each shares experts among as many as divide the degree (planner::ShareExperts). The
// answer says layers, mesh and devices of each stage; devices may stay idle. What it costs is for
// search/layout_cost.h to say, with its schedules and ZeRO.
//
// Thread rule: `layers_of` is called on the caller's thread. Source: Alpa (Zheng et al., OSDI'22)
// section 5.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "ir/job.h"
#include "mesh/topology.h"
#include "planner/cost_model.h"
#include "planner/plan.h"
#include "search/layer_probe.h"
#include "search/layout_cost.h"

namespace meshwright::search {

struct StageLayoutProblem {
  const ir::JobRequest* job = nullptr;
  const mesh::Topology* topology = nullptr;
  const planner::CostModel* costs = nullptr;
  std::vector<std::vector<int>> classes;  // of devices, as in LayerTable
  std::vector<planner::Recompute> modes;  // that may be chosen
  std::vector<int64_t> tensor_degrees;
  int64_t expert = 1;   // the most replicas of a stage that share experts
  int64_t context = 1;  // devices of every stage that share a row
  // Of a mesh that divides the rows of a microbatch. Null: the job cannot be split so.
  std::function<const LayerTable*(const planner::Degrees& degrees)> layers_of;
  int64_t microbatches = 1;
  int64_t zero = 0;
  int64_t timeout_ms = 1'000;
};

// The best stages, with their layers, meshes and devices; of one stage or several. Nothing: none
// fit.
std::optional<planner::Layout> FindStageLayout(const StageLayoutProblem& problem,
                                               const Clock& clock);

}  // namespace meshwright::search
