#include "search/find_shardings.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "planner/cost_model.h"
#include "planner/layout.h"
#include "planner/local_node.h"
#include "planner/lower.h"
#include "planner/schedule.h"
#include "planner/strategy.h"
#include "planner/zero.h"
#include "search/choice_solver.h"
#include "search/intra_model.h"
#include "search/intra_problem.h"
#include "search/pipeline_clock.h"
#include "search/sharding_pins.h"

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
    const bool ring = strategy.expansion == planner::Expansion::kRingAttention;
    double seconds = 0;
    for (const Node& local : builder.graph().nodes) {
      if (!planner::IsCollective(local.op)) {
        seconds += SlowestSeconds(builder.graph(), local);
      } else if (ring) {
        seconds += ShiftSeconds(builder.graph(), local);
      }
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

  // Blocks of keys on their way round a ring.
  double ShiftSeconds(const ir::Graph& graph, const Node& node) const {
    LinkCost worst{0, 0};
    for (const std::string& axis : node.attrs.Strs("axes")) worst = mesh::Slower(worst, Link(axis));
    const auto bytes = static_cast<double>(graph.type(node.inputs[0]).bytes());
    return worst.alpha_s + worst.seconds_per_byte * bytes;
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

namespace {

using planner::Layout;
using planner::Strategies;

// Devices that do not say what they have take anything.
constexpr int64_t kNoLimitBytes = int64_t{1} << 60;

int64_t BudgetBytes(const mesh::Topology& topology, const Layout& layout, double memory_share) {
  int64_t budget = kNoLimitBytes;
  for (int stage = 0; stage < layout.pipeline; ++stage) {
    for (const DeviceIndex index : planner::StageMesh(layout, stage).devices) {
      const int64_t bytes = topology.devices[index.index()].memory_bytes;
      if (bytes > 0) budget = std::min(budget, bytes);
    }
  }
  if (budget == kNoLimitBytes) return budget;
  return static_cast<int64_t>(memory_share * static_cast<double>(budget));
}

// What the job's own ZeRO stage splits is stored so; what that splits over the tensor group, over
// all of its axes.
Result<std::map<std::string, mesh::Sharding>> ZeroPins(const ir::ParallelSpec& parallel,
                                                       const ir::Graph& graph,
                                                       const planner::StageAssignment& stages,
                                                       const Layout& layout) {
  std::map<std::string, mesh::Sharding> pins;
  if (parallel.zero < 1 || layout.degrees[planner::Axis::kData] == 1) return pins;
  Layout asked = layout;
  asked.zero = parallel.zero;
  asked.tensor_axes.clear();
  MW_ASSIGN_OR_RETURN(Strategies rules,
                      planner::ChooseStrategies(graph, stages, asked, {}, layout.tensor()));
  planner::ApplyZero(graph, asked, rules, parallel.zero_min_bytes);
  mesh::AxisList grid;
  for (const ir::MeshAxis& axis : planner::TensorAxes(layout)) grid.push_back(axis.name);
  for (const NodeId id : graph.NodesOf(ir::Op::kParam)) {
    const ir::Attrs& attrs = graph.node(id).attrs;
    const std::string name = attrs.Str("name");
    mesh::Sharding stored = rules.params.at(name);
    const bool split = stored.UsesAxis(planner::kData);
    if (!split || (attrs.Int("state") == 0 && parallel.zero != 3)) continue;
    RenameAxis(planner::kTensor, grid, stored);
    pins[name] = std::move(stored);
  }
  return pins;
}

}  // namespace

IntraOptions IntraOptionsOf(const mesh::Topology& topology, const Layout& layout,
                            double memory_share) {
  IntraOptions options;
  Layout in_space = layout;
  in_space.microbatches = 1;
  options.axes = planner::PlanningMesh(in_space).axes;
  // Those of the tensor group first, "data" last, so that what others and then "data" split is
  // gathered over "data" alone.
  const auto rest =
      std::stable_partition(options.axes.begin(), options.axes.end(), [](const ir::MeshAxis& axis) {
        return planner::RoleOf(axis.name) == planner::AxisRole::kModel;
      });
  std::reverse(rest, options.axes.end());
  for (auto axis = rest; axis != options.axes.end(); ++axis) {
    options.pins.batch_axes.push_back(axis->name);
  }
  options.pins.context_attention = layout.context_attention;
  options.microbatches = layout.microbatches;
  options.kept_microbatches = KeptMicrobatches(layout);
  options.budget_bytes = BudgetBytes(planner::TopologyOf(layout, topology), layout, memory_share);
  return options;
}

int64_t KeptMicrobatches(const Layout& layout) {
  const auto schedule =
      planner::MakeSchedule(layout.schedule, layout.shape(), static_cast<int>(layout.microbatches));
  if (!schedule.has_value()) return layout.microbatches;
  // A byte for each chunk whose last backward is to come.
  PartCost one;
  one.kept_bytes = one.waiting_bytes = 1;
  const std::vector<PartCost> parts(static_cast<size_t>(layout.shape().parts()), one);
  const std::vector<int64_t> held =
      FindFullestMoments(layout.shape(), *schedule, {parts, {}, layout.SplitsBackward()})
          .most_held_bytes;
  return (*std::max_element(held.begin(), held.end()) + layout.chunks - 1) / layout.chunks;
}

planner::ShardingChooser MakeShardingChooser(const ir::JobRequest& job,
                                             const mesh::Topology& topology,
                                             const ShardingSearch& options, const Clock& clock) {
  return [parallel = job.parallel, topology, options, &clock](
             const ir::Graph& graph, const planner::StageAssignment& stages, const Layout& layout,
             const std::map<std::string, mesh::Sharding>& known_params) -> Result<Strategies> {
    if (!layout.stage_degrees.empty()) {
      return Fail(InvalidArgument(
          "shardings are searched for stages with equal meshes only; use shardings = \"rules\""));
    }
    IntraOptions intra = IntraOptionsOf(topology, layout, options.memory_share);
    intra.pins.params = known_params;
    if (known_params.empty()) {
      MW_ASSIGN_OR_RETURN(intra.pins.params, PinnedParams(parallel.sharding_pins, graph, layout));
      // What a pin says of a weight counts more than the ZeRO stage.
      MW_ASSIGN_OR_RETURN(auto of_zero, ZeroPins(parallel, graph, stages, layout));
      intra.pins.params.merge(of_zero);
    }
    const std::unique_ptr<const IntraCosts> costs =
        MakeModelCosts(planner::TopologyOf(layout, topology), layout);
    SolveOptions solve = {options.timeout_ms, options.gap};
    if (options.time != nullptr) {
      solve.timeout_ms = std::min(solve.timeout_ms, options.time->left_ms());
    }
    MW_ASSIGN_OR_RETURN(IntraAnswer answer,
                        SearchIntra(graph, stages, intra, *costs, clock, solve));
    if (options.deciders != nullptr) options.deciders->Add(answer.decider);
    return std::move(answer.strategies);
  };
}

}  // namespace meshwright::search
