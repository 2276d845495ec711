// Every way to compute a node on a mesh, from its factor rule.
//
// Each axis is assigned to one factor (parallel: the work and the result are split; reduced: each
// device has a summand of the result), to none (all devices along it do the same work), or passes a
// partial sum through, where the op is linear. All combinations of axes that divide their factors
// are strategies; what they make of operands and results follows from the rule, so that no op needs
// code of its own but sources, split vocabularies and widths, and sums of scalars.
//
// Thread rule: pure functions. Source: Alpa (Zheng et al., OSDI'22), whose per-op lists are
// what the rules of dots and elementwise ops come to.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"
#include "mesh/sharding.h"
#include "planner/strategy.h"

namespace meshwright::search {

struct StrategySpace {
  mesh::Mesh mesh;                // all axes; devices are not read
  std::vector<std::string> axes;  // those to choose for, in this order within a dim
};

// All strategies of a node that extend `base`, the shardings over the mesh's other axes (which come
// first in every dim): deterministic order, the one that splits nothing first, no two alike. An op
// without a factor rule has that one only. Feeds are split along their rows.
// REQUIRES: not a param.
std::vector<planner::NodeStrategy> NodeStrategies(const ir::Graph& graph, const ir::Node& node,
                                                  const planner::NodeStrategy& base,
                                                  const StrategySpace& space);

// All splits of a tensor over the axes of the space: how a param may be stored.
std::vector<mesh::Sharding> StorageShardings(const ir::TensorType& type,
                                             const StrategySpace& space);

}  // namespace meshwright::search
