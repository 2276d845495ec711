#include "search/node_strategies.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "ir/schema.h"
#include "planner/choosing.h"

namespace meshwright::search {
namespace {

using ir::FactorIndex;
using ir::FactorKind;
using ir::FactorRule;
using ir::Graph;
using ir::Node;
using ir::Op;
using mesh::Sharding;
using planner::NodeStrategy;

constexpr int kAllOperands = -1;

// What one axis does in a node.
struct AxisUse {
  std::optional<FactorIndex> factor;
  std::optional<int> passes;  // the operand that is partial, or kAllOperands
};

// Adds axes to shardings of one node.
class StrategyMaker {
 public:
  StrategyMaker(const Graph& graph, const Node& node, const FactorRule& rule,
                const NodeStrategy& base, const StrategySpace& space)
      : graph_(graph), node_(node), rule_(rule), base_(base), space_(space) {
    for (size_t f = 0; f < rule.factors.size(); ++f) {
      splittable_.push_back(Splittable(static_cast<FactorIndex>(f)));
    }
    FindBaseParts();
  }

  std::vector<NodeStrategy> Run() {
    const std::vector<AxisUse> uses = Uses();
    std::vector<AxisUse> chosen;
    Extend(uses, chosen);
    return std::move(strategies_);
  }

 private:
  // A block of a factor that is minor in some dim lies in pieces all over it: no sharding says
  // that.
  bool Splittable(FactorIndex factor) const {
    const FactorKind kind = rule_.factors[static_cast<size_t>(factor)].kind;
    if (kind == FactorKind::kWhole || kind == FactorKind::kSequence) return false;
    return !planner::IsMinor(rule_, factor);
  }

  // In how many parts the base splits each factor.
  void FindBaseParts() {
    base_parts_.assign(rule_.factors.size(), 1);
    const auto see = [&](const ir::TensorFactors& factors, const Sharding& sharding) {
      for (size_t d = 0; d < factors.size(); ++d) {
        if (factors[d].empty()) continue;
        int64_t& parts = base_parts_[static_cast<size_t>(factors[d][0])];
        parts = std::max(parts, space_.mesh.SizeOf(sharding.dims[d]));
      }
    };
    for (size_t i = 0; i < rule_.operands.size(); ++i) see(rule_.operands[i], base_.operands[i]);
    for (size_t r = 0; r < rule_.results.size(); ++r) see(rule_.results[r], base_.results[r]);
  }

  // What an axis may do, whatever the others do.
  std::vector<AxisUse> Uses() const {
    std::vector<AxisUse> uses = {AxisUse{}};
    for (size_t f = 0; f < rule_.factors.size(); ++f) {
      if (splittable_[f] && rule_.factors[f].size > 1) {
        uses.push_back({.factor = static_cast<FactorIndex>(f), .passes = {}});
      }
    }
    const auto& linear = rule_.linear_operands;
    const bool additive = node_.op == Op::kAdd || node_.op == Op::kSub || node_.op == Op::kSum;
    if (additive) {
      if (std::find(linear.begin(), linear.end(), false) == linear.end()) {
        uses.push_back({.factor = {}, .passes = kAllOperands});
      }
    } else if (node_.op != Op::kEinsum && !Widens()) {
      for (size_t i = 0; i < linear.size(); ++i) {
        if (linear[i]) uses.push_back({.factor = {}, .passes = static_cast<int>(i)});
      }
    }
    return uses;
  }

  // Sums over devices travel in the narrow type.
  bool Widens() const {
    return node_.op == Op::kCast &&
           graph_.type(node_.inputs[0]).bytes() < graph_.type(node_.outputs[0]).bytes();
  }

  void Extend(const std::vector<AxisUse>& uses, std::vector<AxisUse>& chosen) {
    if (chosen.size() == space_.axes.size()) {
      Add(chosen);
      return;
    }
    for (const AxisUse& use : uses) {
      chosen.push_back(use);
      if (Divides(chosen)) Extend(uses, chosen);
      chosen.pop_back();
    }
  }

  bool Divides(const std::vector<AxisUse>& chosen) const {
    const std::optional<FactorIndex> factor = chosen.back().factor;
    if (!factor) return true;
    int64_t parts = base_parts_[static_cast<size_t>(*factor)];
    for (size_t a = 0; a < chosen.size(); ++a) {
      if (chosen[a].factor == factor) parts *= space_.mesh.AxisSize(space_.axes[a]);
    }
    return rule_.factors[static_cast<size_t>(*factor)].size % parts == 0;
  }

  Sharding Split(Sharding sharding, const ir::TensorFactors& factors,
                 const std::vector<AxisUse>& chosen) const {
    for (size_t a = 0; a < chosen.size(); ++a) {
      for (size_t d = 0; chosen[a].factor && d < factors.size(); ++d) {
        if (factors[d].empty() || factors[d][0] != *chosen[a].factor) continue;
        mesh::AxisList& axes = sharding.dims[d];
        axes.insert(PlaceIn(axes), space_.axes[a]);
      }
    }
    return sharding;
  }

  // Of attention, devices that share heads in the place of tokens come last, as the rules have them
  // (planner/choose_expansions.cc).
  mesh::AxisList::iterator PlaceIn(mesh::AxisList& axes) const {
    if (node_.op != Op::kAttention && node_.op != Op::kAttentionGrad) return axes.end();
    return std::find_if(axes.begin(), axes.end(), [](const std::string& axis) {
      return planner::RoleOf(axis) == planner::AxisRole::kSequence;
    });
  }

  // Axes over which the node reduces inside: what splits the vocabulary of a loss, the width of a
  // norm.
  planner::Expansion Within(const AxisUse& use) const {
    if (!use.factor) return planner::Expansion::kNone;
    if (rule_.factors[static_cast<size_t>(*use.factor)].kind == FactorKind::kWithin) {
      return planner::Expansion::kSplitWidth;
    }
    if (node_.op != Op::kCrossEntropy) return planner::Expansion::kNone;
    const ir::DimFactors& last = rule_.operands[0].back();
    const bool vocabulary = !last.empty() && last[0] == *use.factor;
    return vocabulary ? planner::Expansion::kSplitVocabulary : planner::Expansion::kNone;
  }

  void Add(const std::vector<AxisUse>& chosen) {
    NodeStrategy strategy;
    strategy.expansion = base_.expansion;
    for (size_t i = 0; i < rule_.operands.size(); ++i) {
      Sharding sharding = Split(base_.operands[i], rule_.operands[i], chosen);
      for (size_t a = 0; a < chosen.size(); ++a) {
        const bool partial = chosen[a].passes && (*chosen[a].passes == kAllOperands ||
                                                  *chosen[a].passes == static_cast<int>(i));
        if (partial) sharding.partial[space_.axes[a]] = ir::PartialKind::kSum;
      }
      if (!Valid(node_.inputs[i], sharding)) return;
      strategy.operands.push_back(std::move(sharding));
    }
    for (const AxisUse& use : chosen) {
      if (Within(use) != planner::Expansion::kNone) strategy.expansion = Within(use);
    }
    for (size_t r = 0; r < rule_.results.size(); ++r) {
      Sharding sharding = ResultOf(r, chosen);
      if (!Valid(node_.outputs[r], sharding)) return;
      strategy.results.push_back(std::move(sharding));
    }
    if (!seen_.emplace(strategy.operands, strategy.results, strategy.expansion).second) return;
    strategies_.push_back(std::move(strategy));
  }

  Sharding ResultOf(size_t r, const std::vector<AxisUse>& chosen) const {
    Sharding sharding = Split(base_.results[r], rule_.results[r], chosen);
    for (size_t a = 0; a < chosen.size(); ++a) {
      const std::string& axis = space_.axes[a];
      if (chosen[a].passes) sharding.partial[axis] = ir::PartialKind::kSum;
      if (chosen[a].factor && !sharding.UsesAxis(axis) &&
          Within(chosen[a]) == planner::Expansion::kNone)
        sharding.partial[axis] = rule_.result_partial[r];
    }
    return sharding;
  }

  bool Valid(ValueId value, const Sharding& sharding) const {
    return mesh::ValidateSharding(graph_.type(value), sharding, space_.mesh).ok();
  }

  const Graph& graph_;
  const Node& node_;
  const FactorRule& rule_;
  const NodeStrategy& base_;
  const StrategySpace& space_;
  std::vector<bool> splittable_;     // per factor
  std::vector<int64_t> base_parts_;  // per factor
  std::vector<NodeStrategy> strategies_;
  std::set<std::tuple<std::vector<Sharding>, std::vector<Sharding>, planner::Expansion>> seen_;
};

// Shardings that add axes to the dims below `dims` of `base`, and nothing to the others.
std::vector<Sharding> Splits(const ir::TensorType& type, const Sharding& base, size_t dims,
                             const StrategySpace& space) {
  std::vector<Sharding> all = {base};
  for (const std::string& axis : space.axes) {
    std::vector<Sharding> next;
    for (const Sharding& sharding : all) {
      next.push_back(sharding);
      for (size_t d = 0; d < dims; ++d) {
        Sharding split = sharding;
        split.dims[d].push_back(axis);
        if (mesh::ValidateSharding(type, split, space.mesh).ok()) next.push_back(std::move(split));
      }
    }
    all = std::move(next);
  }
  return all;
}

}  // namespace

std::vector<NodeStrategy> NodeStrategies(const Graph& graph, const Node& node,
                                         const NodeStrategy& base, const StrategySpace& space) {
  if (node.op == Op::kFeed) {
    std::vector<NodeStrategy> strategies;
    const size_t dims = ir::IsBatchFeed(node) ? 1 : 0;
    for (Sharding& rows : Splits(graph.type(node.outputs[0]), base.results[0], dims, space)) {
      strategies.push_back({.operands = {}, .results = {std::move(rows)}});
    }
    return strategies;
  }
  if (node.inputs.empty() || base.expansion == planner::Expansion::kGroupedSum) return {base};
  const Result<FactorRule> rule = ir::RuleOf(graph, node);
  if (!rule.has_value()) return {base};
  return StrategyMaker(graph, node, *rule, base, space).Run();
}

std::vector<Sharding> StorageShardings(const ir::TensorType& type, const StrategySpace& space) {
  return Splits(type, Sharding::Replicated(type.rank()), type.dims.size(), space);
}

}  // namespace meshwright::search
