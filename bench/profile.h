// Where a step's time goes: seconds per kind of node, against what its FLOPs and bytes would cost
// at the machine's rates.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bench/limits.h"
#include "ops/kernel.h"

namespace meshwright::bench {

struct NodeTotals {
  int64_t calls = 0;
  double seconds = 0;
  double flops = 0;
  double bytes = 0;
};

// Sums by what the node is: its op, and for a contraction its equation and shapes.
class Profile final : public ops::NodeObserver {
 public:
  void OnNode(const ir::Graph& graph, NodeId node, double seconds) override;
  void Clear() { totals_.clear(); }
  const std::map<std::string, NodeTotals>& totals() const { return totals_; }

 private:
  std::map<std::string, NodeTotals> totals_;
};

}  // namespace meshwright::bench
