#include "search/model_costs.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "planner/cost_model.h"
#include "planner/local_node.h"
#include "planner/lower.h"

namespace meshwright::search {
namespace {

using ir::Node;
using mesh::LinkCost;
using mesh::Sharding;

// Messages of this size show what a byte costs.
constexpr double kLargeBytes = 4 << 20;

// What a byte costs shows a large all-reduce; what a call costs lies between those of an all-reduce
// and of its halves, which have half its messages.
LinkCost LinkOfGroup(const planner::CostModel& costs, const std::vector<int>& devices) {
  using enum mesh::CollectiveKind;
  const auto seconds = [&](mesh::CollectiveKind kind, double bytes) {
    return costs.CollectiveSeconds(kind, bytes, devices);
  };
  const double received =
      mesh::BytesPerDevice(kAllReduce, kLargeBytes, static_cast<int64_t>(devices.size()));
  const double bytes_s = seconds(kAllReduce, kLargeBytes) - seconds(kAllReduce, 0);
  return {(seconds(kAllReduce, 0) + seconds(kAllGather, 0)) / 2, std::max(0.0, bytes_s) / received};
}

class ModelCosts final : public IntraCosts {
 public:
  ModelCosts(const mesh::Topology& topology, const planner::Layout& layout) : costs_(topology) {
    std::set<const mesh::DeviceProfile*> seen;
    for (int stage = 0; stage < layout.pipeline; ++stage) {
      const mesh::Mesh mesh = planner::StageMesh(layout, stage);
      for (const DeviceIndex device : mesh.devices) {
        if (seen.insert(&costs_.ProfileOf(device.value())).second) {
          kinds_.push_back(device.value());
        }
      }
      for (const ir::MeshAxis& axis : mesh.axes) AddLinks(mesh, axis);
    }
  }

  double NodeSeconds(const ir::Graph& graph, const Node& node,
                     const planner::NodeStrategy& strategy, const mesh::Mesh& mesh) const override {
    ir::Builder builder("node");
    std::vector<ValueId> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ir::TensorType& type = graph.type(node.inputs[i]);
      inputs.push_back(
          builder.AddOne(ir::Op::kInput, {}, {{"name", std::to_string(i)}},
                         {{type.dtype, mesh::LocalDims(type.dims, strategy.operands[i], mesh)}}));
    }
    planner::EmitLocalNode(builder, graph, node, strategy, inputs, mesh);
    double seconds = 0;
    for (const Node& local : builder.graph().nodes) {
      if (!planner::IsCollective(local.op)) seconds += SlowestSeconds(builder.graph(), local);
    }
    return seconds;
  }

  LinkCost Link(const std::string& axis) const override {
    const auto it = links_.find(axis);
    return it == links_.end() ? LinkCost{0, 0} : it->second;
  }

  LinkCost Copy() const override {
    LinkCost slowest{0, 0};
    for (const int device : kinds_) {
      const mesh::DeviceProfile& profile = costs_.ProfileOf(device);
      const double byte_s = 1 / profile.Rates(mesh::KernelClass::kElementwise).bytes_per_s;
      slowest = mesh::Slower(slowest, {profile.launch_s, byte_s});
    }
    return slowest;
  }

 private:
  void AddLinks(const mesh::Mesh& mesh, const ir::MeshAxis& axis) {
    if (axis.size == 1) return;
    LinkCost& worst = links_.try_emplace(axis.name, LinkCost{0, 0}).first->second;
    for (int64_t position = 0; position < mesh.device_count(); ++position) {
      const std::vector<DeviceIndex> group = mesh.GroupOf(position, {axis.name});
      if (group.front() != mesh.devices[static_cast<size_t>(position)]) continue;  // known
      std::vector<int> devices;
      for (const DeviceIndex device : group) devices.push_back(device.value());
      worst = mesh::Slower(worst, LinkOfGroup(costs_, devices));
    }
  }

  double SlowestSeconds(const ir::Graph& graph, const Node& node) const {
    const planner::NodeWork work = planner::WorkOf(graph, node);
    double slowest_s = 0;
    for (const int device : kinds_) {
      slowest_s = std::max(slowest_s, costs_.NodeSeconds(work, device));
    }
    return slowest_s;
  }

  const planner::CostModel costs_;
  std::vector<int> kinds_;  // a device of each kind in the layout
  std::map<std::string, LinkCost> links_;
};

}  // namespace

std::unique_ptr<const IntraCosts> MakeModelCosts(const mesh::Topology& topology,
                                                 const planner::Layout& layout) {
  return std::make_unique<ModelCosts>(topology, layout);
}

}  // namespace meshwright::search
