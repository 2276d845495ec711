#include "search/find_shardings.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "planner/layout.h"
#include "planner/lower.h"
#include "planner/schedule.h"
#include "planner/strategy.h"
#include "planner/zero.h"
#include "search/choice_solver.h"
#include "search/intra_problem.h"
#include "search/model_costs.h"
#include "search/pipeline_clock.h"
#include "search/sharding_pins.h"

namespace meshwright::search {
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

class Chooser {
 public:
  Chooser(const ir::JobRequest& job, mesh::Topology topology, const ShardingSearch& options,
          const Clock& clock)
      : zero_(job.parallel.zero),
        pins_(job.parallel.sharding_pins),
        topology_(std::move(topology)),
        options_(options),
        clock_(clock) {}

  Result<Strategies> Choose(const ir::Graph& graph, const planner::StageAssignment& stages,
                            const Layout& layout,
                            const std::map<std::string, mesh::Sharding>& known_params) const {
    if (!layout.stage_degrees.empty()) {
      return Fail(InvalidArgument(
          "shardings are searched for stages with equal meshes only; use shardings = \"rules\""));
    }
    IntraOptions options = IntraOptionsOf(topology_, layout, options_.memory_share);
    options.pins.params = known_params;
    if (known_params.empty()) {
      MW_ASSIGN_OR_RETURN(options.pins.params, PinnedParams(pins_, graph, layout));
      // What a pin says of a weight counts more than the ZeRO stage.
      MW_ASSIGN_OR_RETURN(auto zero, ZeroPins(graph, stages, layout));
      options.pins.params.merge(zero);
    }
    const std::unique_ptr<const IntraCosts> costs =
        MakeModelCosts(planner::TopologyOf(layout, topology_), layout);
    SolveOptions solve;
    solve.timeout_ms = options_.timeout_ms;
    solve.gap = options_.gap;
    MW_ASSIGN_OR_RETURN(IntraAnswer answer,
                        SearchIntra(graph, stages, options, *costs, clock_, solve));
    if (options_.deciders != nullptr) options_.deciders->Add(answer.decider);
    return std::move(answer.strategies);
  }

 private:
  // What the job's own ZeRO stage splits is stored so.
  Result<std::map<std::string, mesh::Sharding>> ZeroPins(const ir::Graph& graph,
                                                         const planner::StageAssignment& stages,
                                                         const Layout& layout) const {
    std::map<std::string, mesh::Sharding> pins;
    if (zero_ < 1 || layout.data() == 1) return pins;
    Layout asked = layout;
    asked.zero = zero_;
    asked.tensor_axes.clear();
    MW_ASSIGN_OR_RETURN(Strategies rules,
                        planner::ChooseStrategies(graph, stages, asked, {}, layout.tensor()));
    planner::ApplyZero(graph, asked, rules);
    for (const NodeId id : graph.NodesOf(ir::Op::kParam)) {
      const ir::Attrs& attrs = graph.node(id).attrs;
      const std::string name = attrs.Str("name");
      const mesh::Sharding& stored = rules.params.at(name);
      const bool split = stored.UsesAxis(planner::kData);
      if (split && (attrs.Int("state") != 0 || zero_ == 3)) pins[name] = OnGrid(stored, layout);
    }
    return pins;
  }

  // What the rules split over the tensor group, over all of its axes.
  static mesh::Sharding OnGrid(mesh::Sharding sharding, const Layout& layout) {
    mesh::AxisList axes;
    for (const ir::MeshAxis& axis : planner::TensorAxes(layout)) axes.push_back(axis.name);
    for (mesh::AxisList& dim : sharding.dims) {
      const auto at = std::find(dim.begin(), dim.end(), planner::kTensor);
      if (at == dim.end()) continue;
      const auto behind = dim.erase(at);
      dim.insert(behind, axes.begin(), axes.end());
    }
    return sharding;
  }

  const int64_t zero_;
  const std::string pins_;
  const mesh::Topology topology_;
  const ShardingSearch options_;
  const Clock& clock_;
};

}  // namespace

IntraOptions IntraOptionsOf(const mesh::Topology& topology, const Layout& layout,
                            double memory_share) {
  IntraOptions options;
  // In this order, so that what "tensor" and then "data" split is gathered over "data" alone.
  options.axes = planner::TensorAxes(layout);
  options.axes.push_back({planner::kData, layout.data()});
  options.microbatches = layout.microbatches;
  options.kept_microbatches = KeptMicrobatches(layout);
  options.budget_bytes = BudgetBytes(planner::TopologyOf(layout, topology), layout, memory_share);
  options.pins.batch_axes = {planner::kData};
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
  const auto chooser = std::make_shared<const Chooser>(job, topology, options, clock);
  return
      [chooser](const ir::Graph& graph, const planner::StageAssignment& stages,
                const Layout& layout, const std::map<std::string, mesh::Sharding>& known_params) {
        return chooser->Choose(graph, stages, layout, known_params);
      };
}

}  // namespace meshwright::search
