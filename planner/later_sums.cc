#include "planner/later_sums.h"

#include <algorithm>
#include <vector>

namespace meshwright::planner {
namespace {

using ir::Node;
using ir::Op;
using ir::Phase;

class LaterSums {
 public:
  LaterSums(const ir::Graph& graph, const StageAssignment& stages, const Strategies& strategies)
      : graph_(graph), stages_(stages), strategies_(strategies), users_(graph.Users()) {}

  std::set<size_t> Run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (!IsAdditive(node) || node.phase == Phase::kUpdate) continue;
      std::set<size_t> marks;
      const auto sums = std::count_if(node.inputs.begin(), node.inputs.end(),
                                      [&](ValueId input) { return MayBeSum(i, input, marks); });
      if (sums > 1) marked_.insert(marks.begin(), marks.end());
    }
    return std::move(marked_);
  }

 private:
  size_t ProducerOf(ValueId value) const { return graph_.value(value).producer.index(); }

  bool IsSum(ValueId value) const {
    const auto& partial = strategies_.values[value].partial;
    const auto it = partial.find(kTensor);
    return it != partial.end() && it->second == ir::PartialKind::kSum;
  }

  bool IsSplit(ValueId value) const {
    const mesh::Sharding& sharding = strategies_.values[value];
    return sharding.UsesAxis(kTensor) && !sharding.partial.contains(kTensor);
  }

  // Whether `reader` can get the value as a partial sum that nobody else needs whole; `marks`: the
  // adds that must pass one on for that.
  bool MayBeSum(size_t reader, ValueId value, std::set<size_t>& marks) const {
    const size_t producer = ProducerOf(value);
    const Node& node = graph_.nodes[producer];
    const bool only_here = users_[value].size() == 1 && node.phase == graph_.nodes[reader].phase &&
                           stages_.node_stages[producer] == stages_.node_stages[reader];
    if (!only_here) return false;
    if (IsSum(value)) return true;
    if (!IsAdditive(node)) return false;
    std::set<size_t> own = {producer};
    bool any = false;
    for (const ValueId input : node.inputs) {
      if (IsSplit(input)) return false;
      any = MayBeSum(producer, input, own) || any;
    }
    if (any) marks.insert(own.begin(), own.end());
    return any;
  }

  const ir::Graph& graph_;
  const StageAssignment& stages_;
  const Strategies& strategies_;
  const IdVector<ValueId, std::vector<NodeId>> users_;
  std::set<size_t> marked_;
};

}  // namespace

bool IsAdditive(const Node& node) {
  return node.op == Op::kAdd || node.op == Op::kSub || node.op == Op::kSum;
}

std::set<size_t> AddsOfLaterSums(const ir::Graph& graph, const StageAssignment& stages,
                                 const Strategies& strategies) {
  return LaterSums(graph, stages, strategies).Run();
}

}  // namespace meshwright::planner
