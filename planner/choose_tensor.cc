#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/check.h"
#include "ir/adapters.h"
#include "ir/factored.h"
#include "planner/choosing.h"

namespace meshwright::planner {

using ir::FactorIndex;
using ir::FactorKind;
using ir::FactorRule;
using ir::Node;
using ir::Op;
using ir::Phase;

namespace {

// The gradient of a split weight is made split: the other operands are gathered, not the gradient
// scattered.
std::optional<FactorIndex> GradientFactor(const NodeAtHand& at, const Choosing& choosing) {
  const auto& [node, rule, views] = at;
  if (node.phase != Phase::kBackward) return std::nullopt;
  for (size_t r = 0; r < node.outputs.size(); ++r) {
    const auto it = choosing.gradient_of.find(node.outputs[r]);
    if (it == choosing.gradient_of.end()) continue;
    const auto param = choosing.result.params.find(it->second);
    if (param == choosing.result.params.end()) continue;
    for (size_t d = 0; d < param->second.dims.size(); ++d) {
      if (!SplitBy(param->second.dims[d], kTensor) || rule.results[r][d].empty()) continue;
      // A weight of several uses may be split along what this use needs whole.
      const FactorIndex factor = rule.results[r][d][0];
      if (choosing.CanSplit(rule, factor, kTensor)) return factor;
    }
  }
  return std::nullopt;
}

std::optional<int> ResultDimOf(const FactorRule& rule, FactorIndex factor) {
  for (size_t d = 0; d < rule.results[0].size(); ++d) {
    if (!rule.results[0][d].empty() && rule.results[0][d][0] == factor) return static_cast<int>(d);
  }
  return std::nullopt;
}

// The degrees, divisors of `units`, that fit every weight of the graph.
std::string FittingDegrees(int64_t units, const Choosing& choosing) {
  const std::set<size_t> none;
  std::vector<int64_t> degrees;
  for (int64_t degree = 1; degree <= std::min(units, choosing.suggest_up_to); ++degree) {
    if (units % degree != 0) continue;
    Layout layout = choosing.layout;
    layout.degrees[Axis::kTensor] = degree;
    // No suggestions of suggestions.
    Choosing other(choosing.graph, choosing.stages, layout, choosing.known_params, 0, none);
    if (StrategiesByRules(other).has_value()) degrees.push_back(degree);
  }
  return fmt::format("{}", fmt::join(degrees, ", "));
}

std::optional<FactorIndex> EmbeddingFactor(const NodeAtHand& at, size_t w, Choosing& choosing) {
  const auto& [node, rule, views] = at;
  const int64_t degree = choosing.layout.tensor();
  const int64_t rows = choosing.graph.type(node.inputs[w]).dims[0];
  if (rows % degree == 0) return std::optional(rule.operands[w][0][0]);
  choosing.result.notes.push_back(
      fmt::format("{} is replicated over tensor={}: its {} rows do not divide (pad the "
                  "vocabulary to a multiple of {} to split it)",
                  choosing.ParamName(node.inputs[w]), degree, rows, degree));
  return std::optional<FactorIndex>();
}

Result<std::optional<FactorIndex>> ColumnFactor(const NodeAtHand& at, size_t w,
                                                Choosing& choosing) {
  const auto& [node, rule, views] = at;
  MW_CHECK(w < rule.operands.size() && !rule.results.empty())
      << "operand " << w << " of " << rule.operands.size();
  const int64_t degree = choosing.layout.tensor();
  const std::string name = choosing.ParamName(node.inputs[w]);
  std::optional<SplitCheck::Answer> misfit;
  std::optional<FactorIndex> gathered;
  // Experts are divided by an axis of their own.
  const size_t first = node.op == Op::kGroupedMatmul ? 1 : 0;
  for (size_t d = first; d < rule.operands[w].size(); ++d) {
    const FactorIndex factor = rule.operands[w][d].empty() ? -1 : rule.operands[w][d][0];
    if (factor < 0 || rule.factors[static_cast<size_t>(factor)].kind != FactorKind::kParallel)
      continue;
    const auto result_dim = ResultDimOf(rule, factor);
    if (!result_dim) continue;
    const SplitCheck::Answer answer =
        choosing.split_check.Check(node.outputs[0], *result_dim, degree);
    if (answer.verdict == SplitCheck::kFits) return std::optional(factor);
    if (answer.verdict == SplitCheck::kGathered && !gathered) gathered = factor;
    if (answer.verdict == SplitCheck::kDoesNotDivide && !misfit) misfit = answer;
  }
  if (gathered) return gathered;
  if (!misfit) {
    choosing.unsplit.push_back(name);
    return std::optional<FactorIndex>();
  }
  if (misfit->is_vocabulary) {
    choosing.result.notes.push_back(
        fmt::format("{} is replicated over tensor={}: the vocabulary of {} does not divide (pad "
                    "it to a multiple of {} to split it)",
                    name, degree, misfit->size, degree));
    return std::optional<FactorIndex>();
  }
  return Fail(InvalidArgument(
      fmt::format("tensor={} does not divide the {} units along which {} {} is split; choose "
                  "tensor in {{{}}}",
                  degree, misfit->size, name, choosing.graph.type(node.inputs[w]).ToString(),
                  FittingDegrees(misfit->size, choosing))));
}

const Node* ParamNode(const Choosing& choosing, ValueId id) {
  const Node* producer = &choosing.graph.producer(id);
  if (IsWeightCast(choosing.graph, *producer)) {
    producer = &choosing.graph.producer(producer->inputs[0]);
  }
  return producer->op == Op::kParam ? producer : nullptr;
}

// A param that belongs to another one is split as that is, and whole along dims of its own.
std::optional<FactorIndex> FactorBeside(const NodeAtHand& at, size_t w, const Node& param,
                                        const Choosing& choosing) {
  const auto other = choosing.result.params.find(param.attrs.Str(ir::kBesideAttr));
  if (other == choosing.result.params.end()) return std::nullopt;
  const std::vector<int64_t> dims = param.attrs.Ints(ir::kBesideDimsAttr);
  for (size_t d = 0; d < dims.size() && d < at.rule.operands[w].size(); ++d) {
    const auto beside = static_cast<size_t>(dims[d]);
    if (dims[d] < 0 || beside >= other->second.dims.size() || at.rule.operands[w][d].empty()) {
      continue;
    }
    if (!SplitBy(other->second.dims[beside], kTensor)) continue;
    const FactorIndex factor = at.rule.operands[w][d][0];
    if (choosing.CanSplit(at.rule, factor, kTensor)) return factor;
  }
  return std::nullopt;
}

// Redco's rules at the first use of weight `w`: follow a split contraction, else split an output
// factor.
Result<std::optional<FactorIndex>> FirstUse(const NodeAtHand& at, size_t w, Choosing& choosing) {
  const auto& [node, rule, views] = at;
  const Node* const param = ParamNode(choosing, node.inputs[w]);
  if (param != nullptr && param->attrs.Has(ir::kBesideAttr)) {
    return FactorBeside(at, w, *param, choosing);
  }
  std::set<FactorIndex> weight_factors;
  for (const ir::DimFactors& dim : rule.operands[w]) weight_factors.insert(dim.begin(), dim.end());
  for (size_t i = 0; i < views.size(); ++i) {
    for (size_t d = 0; i != w && d < views[i].dims.size(); ++d) {
      if (!SplitBy(views[i].dims[d], kTensor)) continue;
      const FactorIndex factor = rule.operands[i][d][0];
      if (weight_factors.contains(factor)) return std::optional(factor);
    }
  }
  if (node.op == Op::kEmbedding) return EmbeddingFactor(at, w, choosing);
  return ColumnFactor(at, w, choosing);
}

// Where a partial activation [batch, sequence, ...] becomes split along the sequence.
std::optional<FactorIndex> SequenceFactor(const NodeAtHand& at, int64_t degree) {
  const auto& [node, rule, views] = at;
  for (size_t i = 0; i < views.size(); ++i) {
    if (!views[i].partial.contains(kTensor) || views[i].dims.size() < 3) continue;
    const FactorIndex factor = rule.operands[i][1].empty() ? -1 : rule.operands[i][1][0];
    if (factor < 0) continue;
    const ir::Factor& f = rule.factors[static_cast<size_t>(factor)];
    const bool divides = f.kind == FactorKind::kParallel && f.size % degree == 0;
    if (divides && !IsMinor(rule, factor)) return factor;
  }
  return std::nullopt;
}

}  // namespace

Result<Choice> ChooseTensor(const NodeAtHand& at, Choosing& choosing) {
  const auto& [node, rule, views] = at;
  Choice choice{kTensor, std::nullopt, false};
  if (ir::IsFactored(node.attrs)) return choice;  // it needs all of the param
  if (node.op == Op::kAdamW || node.op == Op::kSgd) {
    // A param is renewed as it is split; its gradient follows.
    for (size_t d = 0; d < views[0].dims.size(); ++d) {
      if (SplitBy(views[0].dims[d], kTensor)) choice.factor = rule.operands[0][d][0];
    }
    return choice;
  }
  if (const auto factor = GradientFactor(at, choosing)) {
    choice.factor = factor;
    return choice;
  }
  if (node.op == Op::kEinsum || node.op == Op::kEmbedding || node.op == Op::kGroupedMatmul) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (choosing.ParamName(node.inputs[i]).empty()) continue;
      if (choosing.Unassigned(node.inputs[i])) {
        MW_ASSIGN_OR_RETURN(choice.factor, FirstUse(at, i, choosing));
        if (choice.factor) return choice;
        continue;
      }
      for (size_t d = 0; d < views[i].dims.size(); ++d) {
        if (SplitBy(views[i].dims[d], kTensor)) choice.factor = rule.operands[i][d][0];
      }
      if (choice.factor) return choice;
    }
  }
  choice.factor = choosing.FollowOperands(at, kTensor);
  if (choice.factor) return choice;
  choice.passes_partial = choosing.CanPassPartial(at, kTensor);
  if (!choice.passes_partial && choosing.layout.sequence_parallel && node.phase != Phase::kUpdate) {
    choice.factor = SequenceFactor(at, choosing.layout.tensor());
  }
  return choice;
}

}  // namespace meshwright::planner
