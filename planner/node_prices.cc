#include "planner/node_prices.h"

#include <algorithm>

#include "planner/lower.h"

namespace meshwright::planner {

size_t SlowestLinks(std::span<const std::vector<int>> groups, const CostModel& costs) {
  constexpr double kBytes = 1 << 20;
  size_t slowest = 0;
  double most_s = -1;
  for (size_t i = 0; i < groups.size(); ++i) {
    const double seconds =
        costs.CollectiveSeconds(mesh::CollectiveKind::kAllReduce, kBytes, groups[i]);
    if (seconds <= most_s) continue;
    most_s = seconds;
    slowest = i;
  }
  return slowest;
}

double NodePrices::SecondsOf(const ir::Graph& graph, const ir::Node& node) {
  if (!IsCollective(node.op)) return costs_.NodeSeconds(graph, node, device_);
  double bytes = 0;
  for (const ValueId input : node.inputs) bytes += static_cast<double>(graph.type(input).bytes());
  const mesh::GroupShape& group = GroupOf(node.attrs.Strs("axes"));
  return mesh::CostOfCollective(CollectiveKindOf(node.op), bytes, group).seconds +
         costs_.NodeSeconds(PackingOf(graph, node), device_);
}

std::vector<double> NodePrices::SecondsOfNodes(const ir::Graph& graph) {
  std::vector<double> node_s;
  for (const ir::Node& node : graph.nodes) node_s.push_back(SecondsOf(graph, node));
  return node_s;
}

bool NodePrices::BeginsGroup(int64_t position, const mesh::AxisList& axes) const {
  const std::vector<int64_t> coords = mesh_.CoordsOf(position);
  for (size_t i = 0; i < coords.size(); ++i) {
    const bool along = std::find(axes.begin(), axes.end(), mesh_.axes[i].name) != axes.end();
    if (along && coords[i] != 0) return false;
  }
  return true;
}

const mesh::GroupShape& NodePrices::GroupOf(const mesh::AxisList& axes) {
  const auto [at, fresh] = groups_.try_emplace(axes);
  if (!fresh) return at->second;
  std::vector<std::vector<int>> groups;
  for (int64_t first = 0; first < mesh_.device_count(); ++first) {
    if (!BeginsGroup(first, axes)) continue;
    std::vector<int>& members = groups.emplace_back();
    for (const DeviceIndex device : mesh_.GroupOf(first, axes)) members.push_back(device.value());
  }
  at->second = costs_.ShapeOf(groups[SlowestLinks(groups, costs_)]);
  return at->second;
}

}  // namespace meshwright::planner
