// Seconds and bytes of a layout from the costs of its layers: closed forms for what replicas add,
// the table of the schedule on a virtual clock for what stages add.
//
// Devices that share the cores of a host leave them to one another while they wait: a step takes no
// less than all work of a host on all its cores.
//
// A stage's microbatch takes the sum of its layers; messages arrive after their latency and bytes;
// after the last backward a stage reduces its gradients and renews its weights. Where programs run
// collectives beside what computes, what replicas move costs what is longer than that. ZeRO
// (planner/ zero.h) splits the optimizer's work and state (1), reduce-scatters gradients per
// microbatch (2), gathers weights per microbatch (3). Where a stage's microbatches do not fit, its
// layers recompute one after the other: first norms and activation functions in all, then whole
// layers from the first, until it fits.
//
// Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "planner/cost_model.h"
#include "planner/plan.h"
#include "planner/schedule.h"
#include "planner/simulate.h"
#include "search/layer_probe.h"
#include "search/stage_state.h"

namespace meshwright::search {

// Of one layer, by what its backward recomputes.
struct LayerModes {
  std::map<planner::Recompute, LayerProbe> probes;
  // What ZeRO splits over the replicas of the layouts that are priced; modes have equal weights.
  ZeroSplit zero;
  const LayerProbe& at(planner::Recompute mode) const { return probes.at(mode); }
};

// [class of devices][layer of the whole model]; classes from fast to slow.
using LayerTable = std::vector<std::vector<const LayerModes*>>;

// What layouts with equal degrees, microbatches and recomputation on the first devices of the
// topology have in common.
struct LayoutMemo {
  double beside = 0;                      // planner::ShareBeside
  std::vector<std::vector<int>> devices;  // per stage
  std::vector<int> classes;               // per stage, the slowest of its devices
  std::vector<Replicas> replicas;         // per stage
  std::map<std::pair<int, bool>, std::vector<int>> balanced;  // part of each layer; parts, folded
  // By name and chunks.
  std::map<std::pair<std::string, int>, Result<std::vector<planner::StageSchedule>>> schedules;
};

struct LayoutInput {
  const planner::CostModel* costs = nullptr;
  std::vector<LayerTable> layers;         // of every stage; where stages differ one each
  std::vector<int> class_of_device;       // of the topology
  std::vector<planner::Recompute> modes;  // that may be chosen, from cheap to dear
  std::vector<planner::CoreUse> cores;    // per device of the topology
  std::vector<int64_t> memory_bytes;      // per device of the topology; 0: unknown, not checked
  int64_t bucket_bytes = 25 << 20;
  std::function<double(const planner::Layout&)> beside;  // planner::ShareBeside; not set: 0
  LayoutMemo* memo = nullptr;  // shared by the layouts that it is for; null: none
};

struct LayoutCost {
  double step_s = 0;         // where it fits
  bool is_forecast = false;  // step_s is that of a plan's programs, and no estimate
  std::vector<StageCost> stages;
  planner::Layout layout;     // with the layers of parts and what each recomputes
  int64_t missing_bytes = 0;  // of the stage that misses most; 0: fits
  int tightest_stage = 0;
  // Of the stage that needs most, per device.
  int64_t fullest_bytes() const {
    int64_t bytes = 0;
    for (const StageCost& stage : stages) bytes = std::max(bytes, stage.memory_bytes());
    return bytes;
  }
};

// Layers of parts are balanced by their seconds on the slowest device of the part's stage unless
// the layout names them. What cannot fit with a single microbatch in flight is priced no further:
// `missing_bytes` are then the least that it misses. What surely takes `give_up_s` or more is not
// either: step_s is infinite. REQUIRES: parts <= layers; the schedule and its microbatches exist.
LayoutCost CostOfLayout(const LayoutInput& input, const planner::Layout& layout,
                        double give_up_s = std::numeric_limits<double>::infinity());

// CostOfLayout's step_s is no less: without what the order of its schedule adds, and as if it fit.
double BoundOfLayout(const LayoutInput& input, const planner::Layout& layout);

// No layout with these degrees takes less: all work spread evenly, nothing to wait for. 0 where
// stages differ.
double LeastSeconds(const LayoutInput& input, const planner::Layout& layout);

}  // namespace meshwright::search
