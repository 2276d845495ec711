// Where a step's time goes: seconds per kind of node, against what its FLOPs and bytes would cost
// at the machine's rates, and against what the planner expects of it.
//
// Thread rule: one thread, the device's.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/limits.h"
#include "ops/kernel.h"
#include "planner/cost_model.h"

namespace meshwright::bench {

// What a node is: its op, for a contraction its equation, for a fused one its steps, and the type
// of its first result.
std::string KindOf(const ir::Graph& graph, const ir::Node& node);

struct NodeTotals {
  int64_t calls = 0;
  double seconds = 0;
  double flops = 0;
  double bytes = 0;
  double least_s = 0;     // calls at the speed of each node's fastest
  double forecast_s = 0;  // calls as the cost model prices them; 0 without one
};

// By kind.
class Profile final : public ops::NodeObserver {
 public:
  // `costs`: of one device, the first; null: no forecast. Outlives the profile.
  explicit Profile(const planner::CostModel* costs = nullptr) : costs_(costs) {}
  void OnNode(const ir::Graph& graph, NodeId node, double seconds) override;
  void Clear() { nodes_.clear(); }
  std::map<std::string, NodeTotals> Totals() const;

 private:
  struct OneNode {
    std::string kind;
    NodeTotals totals;
  };

  const planner::CostModel* costs_;
  std::map<std::pair<const ir::Graph*, NodeId>, OneNode> nodes_;
};

}  // namespace meshwright::bench
