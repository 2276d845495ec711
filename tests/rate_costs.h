// Costs of an intra-operator search (search/intra_problem.h) from three numbers and a link per
// axis.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "ir/schema.h"
#include "search/intra_problem.h"

namespace meshwright::search {

// Work over rates: the longer of FLOPs and of the local blocks' bytes, plus a constant per node.
struct DeviceRates {
  double flops_per_s = 5e10;
  double bytes_per_s = 1e10;
  double node_s = 0;
};

class RateCosts final : public IntraCosts {
 public:
  RateCosts(const DeviceRates& rates, std::map<std::string, mesh::LinkCost> links)
      : rates_(rates), links_(std::move(links)) {}

  double NodeSeconds(const ir::Graph& graph, const ir::Node& node,
                     const planner::NodeStrategy& strategy, const mesh::Mesh& mesh) const override {
    const ir::OpCost whole = ir::CostOf(graph, node);
    std::set<std::string> axes;
    double bytes = 0;
    const auto see = [&](ValueId value, const mesh::Sharding& sharding) {
      for (const mesh::AxisList& dim : sharding.dims) axes.insert(dim.begin(), dim.end());
      const ir::TensorType& type = graph.type(value);
      bytes += static_cast<double>(
          ir::TensorType{type.dtype, mesh::LocalDims(type.dims, sharding, mesh)}.bytes());
    };
    for (size_t i = 0; i < node.inputs.size(); ++i) see(node.inputs[i], strategy.operands[i]);
    for (size_t r = 0; r < node.outputs.size(); ++r) see(node.outputs[r], strategy.results[r]);
    double parts = 1;
    for (const std::string& axis : axes) parts *= static_cast<double>(mesh.AxisSize(axis));
    return rates_.node_s + std::max(whole.flops / parts / rates_.flops_per_s,
                                    std::min(bytes, whole.bytes) / rates_.bytes_per_s);
  }

  mesh::LinkCost Link(const std::string& axis) const override {
    const auto it = links_.find(axis);
    return it == links_.end() ? mesh::LinkCost{} : it->second;
  }

 private:
  const DeviceRates rates_;
  const std::map<std::string, mesh::LinkCost> links_;
};

inline std::unique_ptr<const IntraCosts> MakeRateCosts(
    const DeviceRates& rates, std::map<std::string, mesh::LinkCost> links) {
  return std::make_unique<RateCosts>(rates, std::move(links));
}

}  // namespace meshwright::search
