// What a plan's step will be like: its programs replayed in virtual time with the cost model.
//
// A RUN takes the sum of its nodes' seconds; its collectives take what their group's links cost.
// Where collectives run beside what computes, a RUN takes as long as the longer of two lanes, and
// the update's first reductions begin when their gradients are there; of what that saves, the share
// counts for which a core is free (planner/overlap.h). Devices that share the cores of a host slow
// one another (planner/simulate.h).
//
// Utilisation: model FLOPs are those of products and attention that the mathematics asks for, once
// for the global batch; hardware FLOPs are those that the programs execute: recomputation,
// replicated work and what attention computes again in its backward count, too. Both per second and
// peak of all devices of the plan. Source: PaLM (Chowdhery et al., 2022, appendix B); Korthikanti
// et al., MLSys 2023, section 6.
//
// Thread rule: pure functions; deterministic.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"
#include "mesh/topology.h"
#include "planner/cost_model.h"
#include "planner/plan.h"
#include "planner/simulate.h"

namespace meshwright::planner {

// Per device of the topology: the cores that it shares with others of its host.
std::vector<CoreUse> CoreUses(const mesh::Topology& topology);

// Devices of the topology that meet the program's in a collective over these axes.
std::vector<int> GroupMembers(const ir::Program& program, const mesh::AxisList& axes);

// Between the device's memory and its host's. Where a profile does not know it: what a core copies
// when another one computes, for a device that is a CPU.
mesh::LinkCost TierLinkOf(const mesh::DeviceProfile& profile, ir::Space far);

struct Traffic {
  double bytes = 0;    // received, all devices
  double seconds = 0;  // inside collectives, mean over the plan's devices; messages: 0
};

struct Forecast {
  double step_s = 0;
  double tokens_per_s = 0;
  double model_flops_utilization = 0;
  double hardware_flops_utilization = 0;
  double hardware_flops = 0;    // of a step, all devices
  double peak_flops_per_s = 0;  // all devices, in the type that most products compute in
  // Devices wait for others: seconds of waiting over all seconds, and over those of work. The first
  // is GPipe's convention, (p-1)/(m+p-1) in the ideal case; the second Megatron's, (p-1)/m.
  double idle_of_total = 0;
  double idle_of_busy = 0;
  // Of the first what is no waiting for others: state and activations come from the memory of the
  // host or a disk, or go there.
  double copies_of_total = 0;
  double collective_s = 0;  // mean over devices; a part of their busy seconds, but for this:
  double hidden_s = 0;      // of these, behind what computes
  // By mesh axes ("data", "data,tensor"); messages between stages: "pipeline".
  std::map<std::string, Traffic> by_axes;
  std::array<double, mesh::kLinkClassCount> bytes_by_link = {};  // received, all devices
  Simulation simulation;
};

// What the plan's devices reach together in products of this type; those that share cores cannot
// all run at their peak. REQUIRES: the topology has the plan's devices.
double PeakFlopsPerS(const Plan& plan, const mesh::Topology& topology, ir::DType dtype);

// Errors: kInvalidArgument when the plan has more devices than the topology, and as Simulate.
Result<Forecast> ForecastStep(const Plan& plan, const mesh::Topology& topology);

}  // namespace meshwright::planner
