// Whether collectives run beside what computes, and what that saves.
//
// A GPU moves bytes while it computes. On CPU devices a second thread moves them, and it needs a
// core while it does: it saves what cores that no device computes on can do. Where there are none,
// two threads take turns on one core, and the step is longer by their turns.
//
// Thread rule: pure functions.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ir/graph.h"
#include "ir/job.h"
#include "ir/program.h"
#include "mesh/topology.h"
#include "planner/layout.h"

namespace meshwright::planner {

// Whatever the profile is called.
bool IsGpu(const mesh::DeviceProfile& profile);

// The share of a collective's time, from 0 to 1, that a program's device can compute in where
// collectives run beside: 1 of a GPU; of CPU devices the cores of their host that none of the
// layout's `devices` computes on, for each of those that are there. Empty: the cores are not known.
std::optional<double> SpareShare(const mesh::Topology& topology, int device, int64_t devices);

// A device that has half a core to spare gains by it. `topology` as the programs see it.
ir::OverlapMode ResolveOverlap(const std::optional<bool>& pinned, const Layout& layout,
                               const mesh::Topology& topology);

// Copies of CPU devices between memories have the threads that collectives would run on.
bool CopiesTakeTurns(const ir::ParallelSpec& parallel, const mesh::Topology& topology);

// What counts of a layout's collectives before it has programs: the least share of its devices,
// where programs will say that collectives run beside; 0 where they will not.
double ShareBeside(const ir::ParallelSpec& parallel, const Layout& layout,
                   const mesh::Topology& topology);

// The share that counts for a program: 0 unless it says that collectives run beside, and for a CPU
// device whose copies between memories have the threads for that. So layouts for GPUs, which the
// search compares without overlap, are forecast without it, too, unless the job asks.
double ShareOf(const ir::Program& program, const mesh::Topology& topology, int64_t devices);

// The seconds of a graph's nodes, walked by two lanes, one for collectives and one for the rest. A
// node begins when its lane is free, its operands are there, and nobody needs what was in the bytes
// of the workspace that it writes.
struct LaneTimes {
  double seconds = 0;           // until both lanes are through
  std::vector<double> made_s;   // per value: when it is there; inputs: 0
  std::vector<double> begin_s;  // per node
};
LaneTimes WalkLanes(const ir::Graph& graph, std::span<const double> node_s);

// What of the reductions that a program's update begins with is done behind earlier RUNs: those of
// values that a RUN leaves in slots begin when they are there, if what they make has a slot.
struct EarlyCollectives {
  double seconds = 0;   // of them all
  double hidden_s = 0;  // of these, done when the RUN before has ended
};
// run: its instruction. node_s: per executable, per node. run_s: per executable.
EarlyCollectives FindEarly(const ir::Program& program, size_t run,
                           std::span<const std::vector<double>> node_s,
                           std::span<const LaneTimes> lanes);

}  // namespace meshwright::planner
