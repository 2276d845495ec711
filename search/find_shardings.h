// Shardings by search for a layout that is decided: the chooser that planner::MakePlanOf takes.
//
// The layout's degrees are the axes; what divides rows, experts or tokens does so as everywhere,
// and splits whatever else the search likes of weights, gradients and optimizer state (ZeRO per
// tensor); "tensor" splits what is cheapest. Seconds are those of MakeModelCosts, the budget is the
// memory of the smallest device. ZeRO that the job asks for is the least that is split: the
// optimizer's state (1 and above) and the weights (3) are stored as planner/zero.h stores them.
//
// The evaluation reads the weights where the step has them, and is free in the rest.
//
// Seconds are by the cost model of planner/cost_model.h. A node is priced as the local node that a
// device runs: the rate of its class of kernels on its local shape. Programs are SPMD, so that
// every stage takes the time of its slowest device; one problem has one price, so the slowest kind
// of device of the layout counts. A collective takes the worst of its axis's groups in any stage.
//
// Nodes are priced one by one, as the search chooses them; the fusion of elementwise nodes that
// comes behind it (compile/compile.h) is not seen.
//
// Thread rule: costs and choosers are immutable and may be called from any threads, but for who
// counts.
#pragma once

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "ir/job.h"
#include "mesh/topology.h"
#include "planner/plan.h"
#include "search/deciders.h"
#include "search/intra_problem.h"
#include "search/search_time.h"

namespace meshwright::search {

// The seconds of an intra-operator problem (search/intra_problem.h) on the devices of a layout. Of
// all its axes. REQUIRES: the topology has layout.device_count() devices.
std::unique_ptr<const IntraCosts> MakeModelCosts(const mesh::Topology& topology,
                                                 const planner::Layout& layout);

struct ShardingSearch {
  int64_t timeout_ms = 5'000;         // of each problem, and never beyond `time`
  const SearchTime* time = nullptr;   // of the plan; null: as if it had no end
  double gap = 0.01;                  // above the best that is good enough
  double memory_share = 1;            // of what the devices have: the budget
  DeciderCounts* deciders = nullptr;  // gets what decided each problem; null: nobody asks
};

// Errors of the chooser: as SearchIntra. `clock` outlives it; `job` and `topology` are copied.
planner::ShardingChooser MakeShardingChooser(const ir::JobRequest& job,
                                             const mesh::Topology& topology,
                                             const ShardingSearch& options, const Clock& clock);

// What the search for shardings is asked on a layout, but for what is decided before: the axes, the
// microbatches and `memory_share` of the memory of the smallest device.
IntraOptions IntraOptionsOf(const mesh::Topology& topology, const planner::Layout& layout,
                            double memory_share);

// The most microbatches whose activations a stage keeps at once, in whole stages. REQUIRES: the
// layout's schedule is one that planner::MakeSchedule makes.
int64_t KeptMicrobatches(const planner::Layout& layout);

}  // namespace meshwright::search
