// Which dims of which weights a tensor group wants padded.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "ir/adapters.h"
#include "planner/choosing.h"
#include "planner/padded_ops.h"
#include "planner/padding.h"

namespace meshwright::planner {
namespace {

using ir::FactorIndex;
using ir::FactorRule;
using ir::Graph;
using ir::Node;
using ir::Op;

// Beyond a quarter more, a table is better whole on every device.
constexpr int64_t kMostGrowth = 4;

// Dims of values that are split together: a class each. Its units are what all of them have in
// common: 12 heads, where one dim is 12 heads and another one 12 x 64 columns.
class DimClasses {
 public:
  explicit DimClasses(const Graph& graph) : graph_(graph) {
    size_t count = 0;
    for (const ir::Value& value : graph.values) {
      first_.push_back(count);
      count += value.type.dims.size();
    }
    parent_.resize(count);
    std::iota(parent_.begin(), parent_.end(), size_t{0});
    units_.assign(count, 0);
    for (const ir::Value& value : graph.values) {
      for (const int64_t size : value.type.dims) sizes_.push_back(size);
    }
    for (const Node& node : graph.nodes) Join(node);
  }

  size_t Of(ValueId value, size_t dim) { return Root(first_[value.index()] + dim); }
  int64_t Units(size_t of) const { return units_[of] == 0 ? sizes_[of] : units_[of]; }

 private:
  size_t Root(size_t at) {
    while (parent_[at] != at) at = parent_[at] = parent_[parent_[at]];
    return at;
  }

  void Join(const Node& node) {
    const Result<FactorRule> rule = ir::RuleOf(graph_, node);
    if (!rule.has_value()) return;
    std::map<FactorIndex, size_t> of_factor;
    const auto join = [&](ValueId value, const ir::TensorFactors& factors) {
      for (size_t d = 0; d < factors.size(); ++d) {
        if (factors[d].empty() || !CarriesPadding(node, *rule, factors[d][0])) continue;
        const size_t own = Of(value, d);
        const size_t other = of_factor.try_emplace(factors[d][0], own).first->second;
        const size_t root = Root(other);
        units_[root] = std::gcd(std::gcd(Units(root), Units(own)),
                                rule->factors[static_cast<size_t>(factors[d][0])].size);
        parent_[own] = root;
      }
    };
    for (size_t i = 0; i < node.inputs.size(); ++i) join(node.inputs[i], rule->operands[i]);
    for (size_t r = 0; r < node.outputs.size(); ++r) join(node.outputs[r], rule->results[r]);
  }

  const Graph& graph_;
  std::vector<size_t> first_;  // place of a value's first dim
  std::vector<size_t> parent_;
  std::vector<int64_t> units_;  // of a class, at its root; 0: not joined yet
  std::vector<int64_t> sizes_;
};

// Follows Redco's rules (planner/strategy.h) over the graph, as far as they choose what weights are
// split along.
class Finder {
 public:
  Finder(const Graph& graph, int64_t tensor, bool words)
      : graph_(graph), tensor_(tensor), words_(words), classes_(graph), check_(graph) {}

  PaddedParams Run(std::vector<std::string>& notes) {
    for (const Node& node : graph_.nodes) {
      if (node.op != Op::kEinsum && node.op != Op::kEmbedding && node.op != Op::kGroupedMatmul) {
        continue;
      }
      const Result<FactorRule> rule = ir::RuleOf(graph_, node);
      if (!rule.has_value()) continue;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (Param(node.inputs[i]) != nullptr) Visit(node, *rule, i);
      }
    }
    return padded_classes_.empty() ? PaddedParams() : Collect(notes);
  }

 private:
  const Node* Param(ValueId value) const {
    const Node* producer = &graph_.producer(value);
    if (producer->op == Op::kCast) producer = &graph_.producer(producer->inputs[0]);
    return producer->op == Op::kParam ? producer : nullptr;
  }

  void Visit(const Node& node, const FactorRule& rule, size_t w) {
    if (Param(node.inputs[w])->attrs.Has(ir::kBesideAttr)) return;
    if (IsSplit(node, rule, w)) return;
    if (node.op == Op::kEmbedding) {
      if (w == 0 && words_) Split(classes_.Of(node.inputs[0], 0), true);
      return;
    }
    std::optional<std::pair<size_t, bool>> misfit;
    for (size_t d = node.op == Op::kGroupedMatmul ? 1 : 0; d < rule.operands[w].size(); ++d) {
      if (rule.operands[w][d].empty()) continue;
      const FactorIndex factor = rule.operands[w][d][0];
      if (rule.factors[static_cast<size_t>(factor)].kind != ir::FactorKind::kParallel) continue;
      const std::optional<size_t> result = ResultDim(rule, factor);
      if (!result) continue;
      const SplitCheck::Answer answer =
          check_.Check(node.outputs[0], static_cast<int>(*result), tensor_);
      const size_t of = classes_.Of(node.outputs[0], *result);
      if (answer.verdict == SplitCheck::kFits) {
        split_.insert(of);
        return;
      }
      if (answer.verdict == SplitCheck::kGathered) return;
      if (answer.verdict == SplitCheck::kDoesNotDivide && !misfit) {
        misfit = {of, answer.is_vocabulary};
      }
    }
    if (misfit && (words_ || !misfit->second)) Split(misfit->first, misfit->second);
  }

  // Whether the weight is split already, or follows what it is multiplied with.
  bool IsSplit(const Node& node, const FactorRule& rule, size_t w) {
    std::set<FactorIndex> of_weight;
    for (size_t d = 0; d < rule.operands[w].size(); ++d) {
      if (split_.contains(classes_.Of(node.inputs[w], d))) return true;
      of_weight.insert(rule.operands[w][d].begin(), rule.operands[w][d].end());
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      for (size_t d = 0; i != w && d < rule.operands[i].size(); ++d) {
        const ir::DimFactors& factors = rule.operands[i][d];
        if (factors.empty() || !of_weight.contains(factors[0])) continue;
        if (split_.contains(classes_.Of(node.inputs[i], d))) return true;
      }
    }
    return false;
  }

  static std::optional<size_t> ResultDim(const FactorRule& rule, FactorIndex factor) {
    for (size_t d = 0; d < rule.results[0].size(); ++d) {
      if (!rule.results[0][d].empty() && rule.results[0][d][0] == factor) return d;
    }
    return std::nullopt;
  }

  int64_t PaddedUnits(size_t of) const {
    return (classes_.Units(of) + tensor_ - 1) / tensor_ * tensor_;
  }

  void Split(size_t of, bool replicable) {
    const int64_t more = PaddedUnits(of) - classes_.Units(of);
    if (more == 0) {
      split_.insert(of);
      return;
    }
    if (replicable && more * kMostGrowth > classes_.Units(of)) return;
    split_.insert(of);
    padded_classes_.insert(of);
  }

  PaddedParams Collect(std::vector<std::string>& notes) {
    PaddedParams params;
    std::map<std::pair<int64_t, int64_t>, std::vector<std::string>> of_units;
    for (const NodeId id : graph_.NodesOf(Op::kParam)) {
      const ValueId value = graph_.node(id).outputs[0];
      const std::string name = graph_.node(id).attrs.Str("name");
      ir::Dims dims = graph_.type(value).dims;
      for (size_t d = 0; d < dims.size(); ++d) {
        const size_t of = classes_.Of(value, d);
        if (!padded_classes_.contains(of)) continue;
        const int64_t units = classes_.Units(of);
        dims[d] = dims[d] / units * PaddedUnits(of);
        of_units[{units, PaddedUnits(of)}].push_back(name);
      }
      if (dims != graph_.type(value).dims) params[name] = dims;
    }
    for (const auto& [units, names] : of_units) {
      notes.push_back(fmt::format(
          "{}{}: {} units are padded to {} for tensor={}, with zeros that no file has", names[0],
          names.size() == 1 ? "" : fmt::format(" and {} more", names.size() - 1), units.first,
          units.second, tensor_));
    }
    return params;
  }

  const Graph& graph_;
  const int64_t tensor_;
  const bool words_;
  DimClasses classes_;
  SplitCheck check_;
  std::set<size_t> split_;  // classes that the tensor axis splits
  std::set<size_t> padded_classes_;
};

}  // namespace

PaddedParams FindPadding(const Graph& graph, int64_t tensor, bool words,
                         std::vector<std::string>& notes) {
  return Finder(graph, tensor, words).Run(notes);
}

}  // namespace meshwright::planner
