// What the nodes of a local graph take on the devices of a mesh: kernels on one device, collectives
// on the slowest of the groups along their axes, because the others wait for it. Where hosts hold
// no multiple of a group, some groups are on two hosts.
//
// Thread rule: not shared between threads; remembers the shapes of groups. The cost model outlives
// it.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "ir/graph.h"
#include "mesh/sharding.h"
#include "planner/cost_model.h"

namespace meshwright::planner {

// Of groups of devices the one whose collectives take longest; of equal ones the first.
size_t SlowestLinks(std::span<const std::vector<int>> groups, const CostModel& costs);

class NodePrices {
 public:
  // `mesh`: of devices that `costs` knows. `device`: runs the kernels.
  NodePrices(mesh::Mesh mesh, const CostModel& costs, int device)
      : mesh_(std::move(mesh)), costs_(costs), device_(device) {}

  double SecondsOf(const ir::Graph& graph, const ir::Node& node);
  std::vector<double> SecondsOfNodes(const ir::Graph& graph);

 private:
  bool BeginsGroup(int64_t position, const mesh::AxisList& axes) const;
  const mesh::GroupShape& GroupOf(const mesh::AxisList& axes);

  const mesh::Mesh mesh_;
  const CostModel& costs_;
  const int device_;
  std::map<mesh::AxisList, mesh::GroupShape> groups_;
};

}  // namespace meshwright::planner
