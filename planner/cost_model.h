// Seconds of everything that a program does on a topology: nodes through the device's profile,
// collectives and messages through the links (mesh/cost.h).
//
// Nothing overlaps: a device computes or communicates. A fused node starts once, computes its steps
// one after the other, and reads and writes once.
//
// Thread rule: immutable once made, so thread-safe; owns what it needs of the topology. Made for
// about a million questions per search: a group's shape is O(members), so ask ShapeOf once for each
// group and keep it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "ir/graph.h"
#include "mesh/cost.h"
#include "mesh/topology.h"

namespace meshwright::planner {

// all_reduce, all_gather, reduce_scatter, all_to_all: what meets other devices.
bool IsCollective(ir::Op op);
// REQUIRES: IsCollective(op).
mesh::CollectiveKind CollectiveKindOf(ir::Op op);

// What a node asks of a device: FLOPs by kernel class, bytes, the type that it computes in. It
// holds for any device, so a search that asks about many devices works it out once.
struct NodeWork {
  bool is_free = false;                                      // names a value: nothing runs
  mesh::KernelClass lead = mesh::KernelClass::kElementwise;  // whose bandwidth counts
  ir::DType dtype = ir::DType::kF32;
  double bytes = 0;
  std::array<double, mesh::kKernelClassCount> flops = {};
  double product_flops() const;  // of products, attention and head: what utilisation counts
};
// REQUIRES: not IsCollective(node.op).
NodeWork WorkOf(const ir::Graph& graph, const ir::Node& node);
// Groups move blocks that are runs of memory (worker/collective_node.h): a dim behind others is
// packed or unpacked block by block, and so are the operands of a bucket. Bytes of a local tensor
// whose blocks along `dim` are no runs, else 0.
int64_t BytesOfBlocks(const ir::TensorType& type, int64_t dim);
// Bytes that a collective of a local graph holds packed.
int64_t PackedBytes(const ir::Graph& graph, const ir::Node& node);
// What its device copies for that, before and after the transfer; is_free: nothing.
NodeWork PackingOf(const ir::Graph& graph, const ir::Node& node);

class CostModel {
 public:
  explicit CostModel(const mesh::Topology& topology);

  int device_count() const { return static_cast<int>(devices_.size()); }
  const mesh::DeviceProfile& ProfileOf(int device) const;

  // Of one run of a local node. REQUIRES: not IsCollective(node.op).
  double NodeSeconds(const ir::Graph& local, const ir::Node& node, int device) const;
  double NodeSeconds(const NodeWork& work, int device) const;

  // `local_bytes`: what each device holds before the call. Devices in any order, each once.
  double CollectiveSeconds(mesh::CollectiveKind kind, double local_bytes,
                           std::span<const int> devices) const;
  mesh::GroupShape ShapeOf(std::span<const int> devices) const;

  double MessageSeconds(int64_t bytes, int from, int to) const;
  mesh::LinkClass ClassOf(int from, int to) const;
  // Between two devices; from a device to itself nothing costs anything. A host's cards are shared
  // by its devices only where several send at once, so here they are not.
  mesh::LinkCost LinkOf(int from, int to) const;
  // The slowest class of link that a group uses.
  mesh::LinkClass ClassOf(std::span<const int> devices) const;

 private:
  struct DeviceInfo {
    mesh::SharedProfile profile;
    int host = 0;
    int worker = 0;
  };
  struct HostInfo {
    int group = 0;
    int64_t devices = 0;
    double nic_seconds_per_byte = 0;
    mesh::LinkCost within;   // between workers
    mesh::LinkCost process;  // between devices of one worker
  };

  const mesh::LinkCost& BetweenGroups(int a, int b) const;
  // Of those that hosts of these groups may use; costs nothing for a single host.
  mesh::LinkCost SlowestBetween(const std::map<int, int64_t>& hosts_of_group) const;

  std::vector<DeviceInfo> devices_;
  std::vector<HostInfo> hosts_;
  std::vector<mesh::LinkCost> between_;  // [group][group], row-major
  std::vector<bool> is_slow_;            // as between_
  int groups_ = 0;
};

// Of products, attention and head in forward and backward, without what attention's backward
// computes a second time. `step_graph`: logical, as MakeStepGraph gives it, before recomputation.
double ModelFlops(const ir::Graph& step_graph);

}  // namespace meshwright::planner
