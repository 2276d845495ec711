// The update of state that lies in the host's memory, by the host: instead of the state's coming
// and going, gradients go out, and weights come back when they are read next.
//
// A node of the update may be the host's where it does nothing but renew a weight and its state: it
// then reads and writes what is in the host's memory, and so do the RUNs that the update is cut
// into for it. A weight that such a node writes lives there, too. What else it reads (a gradient,
// the clip's multiplier) goes out as soon as it is made; what it makes beside the state (the
// renewed block that replicas gather) comes back.
//
// How much of the state the host renews is a share, of whole chunks in turns: every so many of them
// is the device's, which renews it while the host is at the others. Three things then work at once,
// the host, the device and the link between them, each at a rate of its own; the best share is the
// one at which the last of them ends soonest.
//
// Source: Ren et al., ZeRO-Offload, ATC 2021, section 5; Maurya et al., Deep Optimizer States,
// Middleware 2024, section 4. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "ir/job.h"
#include "ir/program.h"
#include "mesh/topology.h"
#include "planner/layout.h"
#include "planner/pieces.h"

namespace meshwright::planner {

// Seconds of an update, if one of the three did all of it.
struct UpdateTimes {
  double device_s = 0;       // the device renews all
  double host_s = 0;         // the host renews all
  double link_device_s = 0;  // what goes over the link where the device renews all
  double link_host_s = 0;    // where the host does
};
// Until the last of the three is done. percent: that the host renews.
double SecondsOfUpdate(const UpdateTimes& times, int64_t percent);
// The percentage with the fewest seconds; of equal ones the largest, which moves least.
int64_t BestHostShare(const UpdateTimes& times);

// Of the state of `elements` weights on the first of the layout's devices.
UpdateTimes TimesOfUpdate(const ir::JobRequest& job, const mesh::Topology& topology,
                          double elements);

// The percentage, decided, of a job whose memories are. Errors: kInvalidArgument: the state is not
// in the host's memory, or a weight is on a disk.
Result<int64_t> ResolveHostUpdate(const ir::JobRequest& job, const mesh::Topology& topology);

// "the host renews 60 % of the state where it lies: .." for a job whose share was open and is
// decided.
std::string HostUpdateNote(const ir::JobRequest& job, const mesh::Topology& topology);

// Seconds that the host of a device takes for a RUN of this graph. Of a CPU device it has one
// thread, of a GPU as many as base/gpu_host_threads.h says, each as fast as the core of
// mesh::DefaultDeviceProfile().
double HostRunSeconds(const mesh::Topology& topology, int device, const ir::Graph& graph);

// Per piece and node: the host runs it. Empty: it runs nothing. Weights that such nodes write are
// marked as in the host's memory. REQUIRES that state is marked (planner/tiers.h).
using HostNodes = std::vector<std::vector<bool>>;
HostNodes ChooseHostNodes(const ir::ParallelSpec& wanted, Partition& partition);

// Weights by stage and name.
using HostWeights = std::set<std::pair<int, std::string>>;
// Those that the partition has in the host's memory.
HostWeights HostWeightsOf(const Partition& partition);
void MarkHostWeights(const HostWeights& weights, Partition& partition);

// A RUN of the update that renews state of the host's memory, and who runs it.
struct UpdateGroup {
  size_t instruction = 0;
  bool on_host = false;
  std::vector<std::string> weights;  // whose state it is
  int64_t state_bytes = 0;
};
std::vector<UpdateGroup> UpdateGroupsOf(const ir::Program& program);

// Of what RUNs of the host (`on_host`: per executable) read and write on the device, copies in the
// host's memory: what is read goes there behind whatever makes it, what is written comes back
// before it is read. For lists without FREE.
void AddHostCopies(const std::vector<bool>& on_host, ir::Program& program);

}  // namespace meshwright::planner
