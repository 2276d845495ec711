#include "planner/strategy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "ir/schema.h"
#include "planner/later_sums.h"
#include "planner/resolve_layout.h"
#include "planner/split_check.h"

namespace meshwright::planner {
namespace {

using ir::FactorIndex;
using ir::FactorKind;
using ir::FactorRule;
using ir::Graph;
using ir::Node;
using ir::Op;
using ir::Phase;
using mesh::Sharding;

bool SplitBy(const mesh::AxisList& axes, const std::string& axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

class Chooser {
 public:
  Chooser(const Graph& graph, const StageAssignment& stages, const Layout& layout,
          const std::map<std::string, Sharding>& known_params, int64_t suggest_up_to,
          const std::set<size_t>& sums_later)
      : graph_(graph),
        stages_(stages),
        layout_(layout),
        suggest_up_to_(suggest_up_to),
        sums_later_(sums_later),
        mesh_(PlanningMesh(layout)),
        split_check_(graph),
        users_(graph.Users()) {
    result_.nodes.resize(graph.nodes.size());
    result_.values.resize(graph.values.size());
    result_.params = known_params;
    known_params_ = known_params;
    FindGradients();
  }

  Result<Strategies> Run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Status status = Visit(i, graph_.nodes[i]);
      if (!status.ok()) {
        return Fail(
            status.WithContext(fmt::format("{} (node {})", ir::OpName(graph_.nodes[i].op), i)));
      }
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) MW_TRY(SettleWeightCast(i));
    return std::move(result_);
  }

 private:
  // One axis' decision for one node.
  struct Choice {
    std::string axis;
    std::optional<FactorIndex> factor;
    bool passes_partial = false;
  };

  // ---- set-up ----

  // Which value is (a contribution to) the gradient of which param.
  void FindGradients() {
    for (const ir::NamedValue& output : graph_.outputs) {
      if (!output.name.starts_with("grad/")) continue;
      const std::string param = output.name.substr(5);
      gradient_of_[output.value] = param;
      const Node& producer = graph_.producer(output.value);
      if (producer.op != Op::kSum) continue;
      for (ValueId input : producer.inputs) gradient_of_[input] = param;
    }
  }

  // ---- operands ----

  // Of a param or its cast.
  std::string ParamName(ValueId id) const {
    const Node* producer = &graph_.producer(id);
    if (IsWeightCast(graph_, *producer)) producer = &graph_.producer(producer->inputs[0]);
    return producer->op == Op::kParam ? producer->attrs.Str("name") : "";
  }

  // A param that no node has used yet takes whatever sharding its first user asks for.
  bool Unassigned(ValueId id) const {
    const std::string name = ParamName(id);
    return !name.empty() && !result_.params.contains(name);
  }

  Sharding ViewOf(const Node& node, ValueId id) const {
    const std::string name = ParamName(id);
    if (!name.empty()) {
      const auto it = result_.params.find(name);
      return it == result_.params.end() ? Sharding::Replicated(graph_.type(id).rank()) : it->second;
    }
    const Sharding& sharding = result_.values[id];
    const bool accumulated =
        node.phase == Phase::kUpdate && graph_.producer(id).phase != Phase::kUpdate;
    return accumulated ? WithoutAxis(sharding, kMicro) : sharding;
  }

  size_t IndexOf(const Node& node) const {
    return static_cast<size_t>(&node - graph_.nodes.data());
  }

  // ---- choosing a factor per axis ----

  bool CanPassPartial(const Node& node, const FactorRule& rule, const std::vector<Sharding>& views,
                      const std::string& axis) const {
    if (node.op == Op::kEinsum) return false;
    // Sums over devices travel in the narrow type.
    const bool widens = node.op == Op::kCast &&
                        graph_.type(node.inputs[0]).bytes() < graph_.type(node.outputs[0]).bytes();
    if (widens && axis != kMicro) return false;
    const bool later = axis == kTensor && sums_later_.contains(IndexOf(node));
    std::set<ir::PartialKind> kinds;
    size_t partial = 0;
    for (size_t i = 0; i < views.size(); ++i) {
      const auto it = views[i].partial.find(axis);
      if (it == views[i].partial.end()) {
        if (later && views[i].UsesAxis(axis)) return false;
        continue;
      }
      if (!rule.linear_operands[i] || (!later && UsedElsewhere(node.inputs[i], axis))) return false;
      ++partial;
      kinds.insert(it->second);
    }
    if (partial == 0 || kinds != std::set<ir::PartialKind>{ir::PartialKind::kSum}) return false;
    const bool additive = IsAdditive(node);
    if (additive && partial != views.size() && !later) return false;
    if (!additive && partial != 1) return false;
    // Microbatches follow each other in every stage alike: a summand of one is that in all stages.
    return axis == kMicro || SameStage(node);
  }

  // A partial activation with several users is reduced once for all of them.
  bool UsedElsewhere(ValueId value, const std::string& axis) const {
    return axis == kTensor && users_[value].size() > 1;
  }

  const std::vector<int>& StagesOf(ValueId value) const {
    return stages_.node_stages[graph_.value(value).producer.index()];
  }

  // Sums over devices do not cross stages: every stage of the node must compute the operands too.
  bool SameStage(const Node& node) const {
    const std::vector<int>& own = StagesOf(node.outputs[0]);
    return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
      const std::vector<int>& made = StagesOf(input);
      return ParamName(input) != "" ||
             std::includes(made.begin(), made.end(), own.begin(), own.end());
    });
  }

  bool CanSplit(const FactorRule& rule, FactorIndex factor, const std::string& axis) const {
    const ir::Factor& f = rule.factors[static_cast<size_t>(factor)];
    const bool whole = f.kind == FactorKind::kWhole || (f.kind == FactorKind::kSequence &&
                                                        RoleOf(axis) != AxisRole::kSequence);
    return !whole && f.size % mesh_.AxisSize(axis) == 0;
  }

  // The factor along which most operand bytes are already split by the axis.
  std::optional<FactorIndex> FollowOperands(const Node& node, const FactorRule& rule,
                                            const std::vector<Sharding>& views,
                                            const std::string& axis) const {
    std::map<FactorIndex, int64_t> bytes;
    for (size_t i = 0; i < views.size(); ++i) {
      for (size_t d = 0; d < views[i].dims.size(); ++d) {
        if (!SplitBy(views[i].dims[d], axis) || rule.operands[i][d].empty()) continue;
        bytes[rule.operands[i][d][0]] += graph_.type(node.inputs[i]).bytes();
      }
    }
    std::optional<FactorIndex> best;
    for (const auto& [factor, amount] : bytes) {
      if (!CanSplit(rule, factor, axis)) continue;
      if (!best || amount > bytes[*best]) best = factor;
    }
    return best;
  }

  Result<Choice> Choose(const Node& node, const FactorRule& rule,
                        const std::vector<Sharding>& views, const std::string& axis) {
    switch (RoleOf(axis)) {
      case AxisRole::kRows:
        return ChooseBatch(node, rule, views, axis);
      case AxisRole::kSequence:
        return ChooseSequence(node, rule, views, axis);
      case AxisRole::kModel:
        return ChooseTensor(node, rule, views);
    }
    return Fail(Internal("an axis of no role"));
  }

  // Tokens of a row are split from where the model looks them up on. What is summed over the blocks
  // of a row becomes split along it again where it is one of its tensors (gradients of keys); sums
  // for weights wait for the update.
  Result<Choice> ChooseSequence(const Node& node, const FactorRule& rule,
                                const std::vector<Sharding>& views, const std::string& axis) {
    Choice choice{axis, std::nullopt, false};
    if (node.op == Op::kEmbedding && graph_.type(node.inputs[1]).rank() == 2) {
      const FactorIndex tokens = rule.operands[1][1][0];
      tokens_ = graph_.type(node.inputs[1]).dims[1];
      if (!CanSplit(rule, tokens, axis)) {
        return Fail(InvalidArgument(fmt::format(
            "{}={} does not divide the {} tokens of a row; choose {} in {{{}}}", axis,
            mesh_.AxisSize(axis), tokens_, axis, DivisorList(tokens_, suggest_up_to_))));
      }
      choice.factor = tokens;
      return choice;
    }
    choice.factor = FollowOperands(node, rule, views, axis);
    if (!choice.factor) choice.factor = TokensOfSums(node, rule, views, axis);
    if (!choice.factor) choice.passes_partial = CanPassPartial(node, rule, views, axis);
    return choice;
  }

  std::optional<FactorIndex> TokensOfSums(const Node& node, const FactorRule& rule,
                                          const std::vector<Sharding>& views,
                                          const std::string& axis) const {
    for (size_t i = 0; i < views.size(); ++i) {
      const bool tokens = views[i].dims.size() >= 3 &&
                          graph_.type(node.inputs[i]).dims[1] == tokens_ &&
                          !gradient_of_.contains(node.inputs[i]);
      if (!tokens || !views[i].partial.contains(axis) || rule.operands[i][1].empty()) continue;
      const FactorIndex factor = rule.operands[i][1][0];
      if (CanSplit(rule, factor, axis)) return factor;
    }
    return std::nullopt;
  }

  Result<Choice> ChooseBatch(const Node& node, const FactorRule& rule,
                             const std::vector<Sharding>& views, const std::string& axis) const {
    Choice choice{axis, FollowOperands(node, rule, views, axis), false};
    if (choice.factor) return choice;
    for (size_t i = 0; i < views.size(); ++i) {
      for (size_t d = 0; d < views[i].dims.size(); ++d) {
        if (!SplitBy(views[i].dims[d], axis)) continue;
        return Fail(
            InvalidArgument(fmt::format("operand {} is split along the batch (dim {}), which this "
                                        "op needs whole; compute per row, or use {}=1",
                                        i, d, axis)));
      }
    }
    choice.passes_partial = CanPassPartial(node, rule, views, axis);
    if (axis == kMicro && !choice.passes_partial) {
      for (const Sharding& view : views) {
        if (!view.partial.contains(axis)) continue;
        return Fail(
            InvalidArgument("a sum over the batch is used before the update; with microbatches > 1 "
                            "it is not known yet: divide in the "
                            "loss's count instead, or use microbatches=1"));
      }
    }
    return choice;
  }

  Result<Choice> ChooseTensor(const Node& node, const FactorRule& rule,
                              const std::vector<Sharding>& views) {
    Choice choice{kTensor, std::nullopt, false};
    if (node.op == Op::kAdamW || node.op == Op::kSgd) {
      // A param is renewed as it is split; its gradient follows.
      for (size_t d = 0; d < views[0].dims.size(); ++d) {
        if (SplitBy(views[0].dims[d], kTensor)) choice.factor = rule.operands[0][d][0];
      }
      return choice;
    }
    if (const auto factor = GradientFactor(node, rule)) {
      choice.factor = factor;
      return choice;
    }
    if (node.op == Op::kEinsum || node.op == Op::kEmbedding) {
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (ParamName(node.inputs[i]).empty()) continue;
        if (Unassigned(node.inputs[i])) {
          MW_ASSIGN_OR_RETURN(choice.factor, FirstUse(node, rule, views, i));
          if (choice.factor) return choice;
          continue;
        }
        for (size_t d = 0; d < views[i].dims.size(); ++d) {
          if (SplitBy(views[i].dims[d], kTensor)) choice.factor = rule.operands[i][d][0];
        }
        if (choice.factor) return choice;
      }
    }
    choice.factor = FollowOperands(node, rule, views, kTensor);
    if (choice.factor) return choice;
    choice.passes_partial = CanPassPartial(node, rule, views, kTensor);
    if (!choice.passes_partial && layout_.sequence_parallel && node.phase != Phase::kUpdate) {
      choice.factor = SequenceFactor(rule, views);
    }
    return choice;
  }

  // The gradient of a split weight is made split: the other operands are gathered, not the gradient
  // scattered.
  std::optional<FactorIndex> GradientFactor(const Node& node, const FactorRule& rule) const {
    if (node.phase != Phase::kBackward) return std::nullopt;
    for (size_t r = 0; r < node.outputs.size(); ++r) {
      const auto it = gradient_of_.find(node.outputs[r]);
      if (it == gradient_of_.end()) continue;
      const auto param = result_.params.find(it->second);
      if (param == result_.params.end()) continue;
      for (size_t d = 0; d < param->second.dims.size(); ++d) {
        if (!SplitBy(param->second.dims[d], kTensor) || rule.results[r][d].empty()) continue;
        // A weight of several uses may be split along what this use needs whole.
        const FactorIndex factor = rule.results[r][d][0];
        if (CanSplit(rule, factor, kTensor)) return factor;
      }
    }
    return std::nullopt;
  }

  // Redco's rules at the first use of weight `w`: follow a split contraction, else split an output
  // factor.
  Result<std::optional<FactorIndex>> FirstUse(const Node& node, const FactorRule& rule,
                                              const std::vector<Sharding>& views, size_t w) {
    std::set<FactorIndex> weight_factors;
    for (const ir::DimFactors& dim : rule.operands[w])
      weight_factors.insert(dim.begin(), dim.end());
    for (size_t i = 0; i < views.size(); ++i) {
      for (size_t d = 0; i != w && d < views[i].dims.size(); ++d) {
        if (!SplitBy(views[i].dims[d], kTensor)) continue;
        const FactorIndex factor = rule.operands[i][d][0];
        if (weight_factors.contains(factor)) return std::optional(factor);
      }
    }
    if (node.op == Op::kEmbedding) return EmbeddingFactor(node, rule, w);
    return ColumnFactor(node, rule, w);
  }

  Result<std::optional<FactorIndex>> EmbeddingFactor(const Node& node, const FactorRule& rule,
                                                     size_t w) {
    const int64_t rows = graph_.type(node.inputs[w]).dims[0];
    if (rows % layout_.tensor() == 0) return std::optional(rule.operands[w][0][0]);
    result_.notes.push_back(
        fmt::format("{} is replicated over tensor={}: its {} rows do not divide (pad the "
                    "vocabulary to a multiple of {} to split it)",
                    ParamName(node.inputs[w]), layout_.tensor(), rows, layout_.tensor()));
    return std::optional<FactorIndex>();
  }

  Result<std::optional<FactorIndex>> ColumnFactor(const Node& node, const FactorRule& rule,
                                                  size_t w) {
    const std::string name = ParamName(node.inputs[w]);
    std::optional<SplitCheck::Answer> misfit;
    for (size_t d = 0; d < rule.operands[w].size(); ++d) {
      const FactorIndex factor = rule.operands[w][d].empty() ? -1 : rule.operands[w][d][0];
      if (factor < 0 || rule.factors[static_cast<size_t>(factor)].kind != FactorKind::kParallel)
        continue;
      const auto result_dim = ResultDimOf(rule, factor);
      if (!result_dim) continue;
      const SplitCheck::Answer answer =
          split_check_.Check(node.outputs[0], *result_dim, layout_.tensor());
      if (answer.verdict == SplitCheck::kFits) return std::optional(factor);
      if (answer.verdict == SplitCheck::kDoesNotDivide && !misfit) misfit = answer;
    }
    if (!misfit) {
      result_.notes.push_back(fmt::format(
          "{} is replicated over tensor={}: no factor of it can be split", name, layout_.tensor()));
      return std::optional<FactorIndex>();
    }
    if (misfit->is_vocabulary) {
      result_.notes.push_back(
          fmt::format("{} is replicated over tensor={}: the vocabulary of {} does not divide (pad "
                      "it to a multiple of {} to split it)",
                      name, layout_.tensor(), misfit->size, layout_.tensor()));
      return std::optional<FactorIndex>();
    }
    return Fail(InvalidArgument(
        fmt::format("tensor={} does not divide the {} units along which {} {} is split; choose "
                    "tensor in {{{}}}",
                    layout_.tensor(), misfit->size, name, graph_.type(node.inputs[w]).ToString(),
                    FittingDegrees(misfit->size))));
  }

  // The degrees, divisors of `units`, that fit every weight of the graph.
  std::string FittingDegrees(int64_t units) const {
    std::vector<int64_t> degrees;
    for (int64_t degree = 1; degree <= std::min(units, suggest_up_to_); ++degree) {
      if (units % degree != 0) continue;
      Layout layout = layout_;
      layout.degrees[Axis::kTensor] = degree;
      // No suggestions of suggestions.
      if (Chooser(graph_, stages_, layout, known_params_, 0, {}).Run().has_value()) {
        degrees.push_back(degree);
      }
    }
    return fmt::format("{}", fmt::join(degrees, ", "));
  }

  static std::optional<int> ResultDimOf(const FactorRule& rule, FactorIndex factor) {
    for (size_t d = 0; d < rule.results[0].size(); ++d) {
      if (!rule.results[0][d].empty() && rule.results[0][d][0] == factor)
        return static_cast<int>(d);
    }
    return std::nullopt;
  }

  // Where a partial activation [batch, sequence, ...] becomes split along the sequence.
  std::optional<FactorIndex> SequenceFactor(const FactorRule& rule,
                                            const std::vector<Sharding>& views) const {
    for (size_t i = 0; i < views.size(); ++i) {
      if (!views[i].partial.contains(kTensor) || views[i].dims.size() < 3) continue;
      const FactorIndex factor = rule.operands[i][1].empty() ? -1 : rule.operands[i][1][0];
      if (factor < 0) continue;
      const ir::Factor& f = rule.factors[static_cast<size_t>(factor)];
      if (f.kind == FactorKind::kParallel && f.size % layout_.tensor() == 0) return factor;
    }
    return std::nullopt;
  }

  // ---- applying the choices ----

  // A weight that nothing but its cast reads is sharded by the readers of the cast.
  Status SettleWeightCast(size_t index) {
    const Node& node = graph_.nodes[index];
    if (!IsWeightCast(graph_, node)) return OkStatus();
    const int rank = graph_.type(node.outputs[0]).rank();
    const Sharding sharding =
        result_.params.try_emplace(ParamName(node.inputs[0]), Sharding::Replicated(rank))
            .first->second;
    result_.nodes[index].operands = {sharding};
    return SetResults(node, result_.nodes[index], {sharding});
  }

  Status Visit(size_t index, const Node& node) {
    NodeStrategy& strategy = result_.nodes[index];
    if (node.op == Op::kParam || IsWeightCast(graph_, node)) return OkStatus();
    if (node.op == Op::kFeed) {
      Sharding sharding = Sharding::Replicated(graph_.type(node.outputs[0]).rank());
      int64_t parts = 1;
      for (const ir::MeshAxis& axis : mesh_.axes) {
        if (RoleOf(axis.name) != AxisRole::kRows || !ir::IsBatchFeed(node)) continue;
        // A program of few rows computes them on every replica.
        if (graph_.type(node.outputs[0]).dims[0] % (parts * axis.size) != 0) continue;
        parts *= axis.size;
        sharding.dims[0].push_back(axis.name);
      }
      return SetResults(node, strategy, {sharding});
    }
    if (node.inputs.empty()) {
      return SetResults(node, strategy,
                        {Sharding::Replicated(graph_.type(node.outputs[0]).rank())});
    }
    std::vector<Sharding> views;
    for (ValueId input : node.inputs) views.push_back(ViewOf(node, input));
    if (IsGroupedSum(node, views)) {
      strategy.operands = std::move(views);
      strategy.expansion = Expansion::kGroupedSum;
      return SetResults(node, strategy, {Sharding::Replicated(0)});
    }
    MW_ASSIGN_OR_RETURN(const FactorRule rule, ir::RuleOf(graph_, node));
    std::vector<Choice> choices;
    for (const ir::MeshAxis& axis : mesh_.axes) {
      MW_ASSIGN_OR_RETURN(Choice chosen, Choose(node, rule, views, axis.name));
      choices.push_back(std::move(chosen));
    }
    strategy.operands = OperandShardings(node, rule, views, choices);
    if (SumsPartialsFirst(node, views, choices)) KeepPartials(views, strategy);
    MW_TRY(AssignParams(node, strategy));
    if (node.op == Op::kCrossEntropy && SplitsVocabulary(rule, choices)) {
      strategy.expansion = Expansion::kSplitVocabulary;
    }
    std::vector<Sharding> results = ResultShardings(node, rule, choices, strategy.expansion);
    if (GoesRound(node, strategy)) MakeRing(node, strategy, results);
    return SetResults(node, strategy, std::move(results));
  }

  // Whether blocks of keys go round a ring of the devices that share a row. They take less memory
  // than all keys, and more messages.
  bool GoesRound(const Node& node, const NodeStrategy& strategy) const {
    constexpr int64_t kFewBytes = int64_t{16} << 20;
    if (node.op != Op::kAttention && node.op != Op::kAttentionGrad) return false;
    const Sharding& keys = strategy.operands[1];
    if (strategy.operands[0].dims[1].empty() || !keys.dims[1].empty()) return false;
    if (layout_.context_attention != ContextAttention::kAuto) {
      return layout_.context_attention == ContextAttention::kRing;
    }
    const ir::TensorType& type = graph_.type(node.inputs[1]);
    const ir::TensorType local{type.dtype, mesh::LocalDims(type.dims, keys, mesh_)};
    return 2 * local.bytes() > kFewBytes;
  }

  static void MakeRing(const Node& node, NodeStrategy& strategy, std::vector<Sharding>& results) {
    const mesh::AxisList& axes = strategy.operands[0].dims[1];
    strategy.expansion = Expansion::kRingAttention;
    for (const size_t i : {1, 2}) {
      strategy.operands[i].dims[1] = axes;
      if (node.op != Op::kAttentionGrad) continue;
      for (const std::string& axis : axes) results[i].partial.erase(axis);
      results[i].dims[1] = axes;
    }
  }

  bool IsGroupedSum(const Node& node, const std::vector<Sharding>& views) const {
    if (node.op != Op::kSum || node.phase != Phase::kUpdate || !SameStage(node)) return false;
    if (graph_.type(node.outputs[0]).rank() != 0) return false;
    return std::any_of(views.begin(), views.end(),
                       [](const Sharding& view) { return !view.partial.empty(); });
  }

  // Several operands of a sum are partial over the tensor group, and others are not: they are
  // reduced together.
  bool SumsPartialsFirst(const Node& node, const std::vector<Sharding>& views,
                         const std::vector<Choice>& choices) const {
    const bool passes = std::any_of(choices.begin(), choices.end(), [](const Choice& choice) {
      return choice.axis == kTensor && choice.passes_partial;
    });
    if (node.op != Op::kSum || node.phase == Phase::kUpdate || passes || !SameStage(node)) {
      return false;
    }
    return std::count_if(views.begin(), views.end(), IsTensorSum) > 1;
  }

  static bool IsTensorSum(const Sharding& view) {
    const auto it = view.partial.find(kTensor);
    return it != view.partial.end() && it->second == ir::PartialKind::kSum;
  }

  static void KeepPartials(const std::vector<Sharding>& views, NodeStrategy& strategy) {
    strategy.expansion = Expansion::kGroupedSum;
    for (size_t i = 0; i < views.size(); ++i) {
      if (!IsTensorSum(views[i])) continue;
      strategy.operands[i] = WithoutAxis(strategy.operands[i], kTensor);
      strategy.operands[i].partial[kTensor] = ir::PartialKind::kSum;
    }
  }

  static Sharding FromChoices(const ir::TensorFactors& factors,
                              const std::vector<Choice>& choices) {
    Sharding sharding = Sharding::Replicated(static_cast<int>(factors.size()));
    for (const Choice& choice : choices) {
      for (size_t d = 0; choice.factor && d < factors.size(); ++d) {
        if (!factors[d].empty() && factors[d][0] == *choice.factor)
          sharding.dims[d].push_back(choice.axis);
      }
    }
    return sharding;
  }

  std::vector<Sharding> OperandShardings(const Node& node, const FactorRule& rule,
                                         const std::vector<Sharding>& views,
                                         const std::vector<Choice>& choices) const {
    std::vector<Sharding> operands;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      Sharding sharding = FromChoices(rule.operands[i], choices);
      for (const Choice& choice : choices) {
        const auto it = views[i].partial.find(choice.axis);
        if (choice.passes_partial && it != views[i].partial.end())
          sharding.partial[choice.axis] = it->second;
        // What is whole is added once: by the first device along the axis.
        if (choice.passes_partial && choice.axis == kTensor && IsAdditive(node))
          sharding.partial[choice.axis] = ir::PartialKind::kSum;
      }
      operands.push_back(std::move(sharding));
    }
    return operands;
  }

  Status AssignParams(const Node& node, const NodeStrategy& strategy) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!Unassigned(node.inputs[i])) continue;
      if (strategy.operands[i].UsesAxis(kMicro)) {
        return InvalidArgument(fmt::format(
            "param {} {} has a value per row of the batch; rows come in {} microbatches: use "
            "microbatches=1 or a param without the batch dim",
            ParamName(node.inputs[i]), graph_.type(node.inputs[i]).ToString(),
            layout_.microbatches));
      }
      Sharding& sharding = result_.params[ParamName(node.inputs[i])];
      sharding = strategy.operands[i];
      sharding.partial.clear();
    }
    return OkStatus();
  }

  static bool SplitsVocabulary(const FactorRule& rule, const std::vector<Choice>& choices) {
    const ir::DimFactors& vocabulary = rule.operands[0].back();
    for (const Choice& choice : choices) {
      if (choice.axis == kTensor && choice.factor && !vocabulary.empty() &&
          *choice.factor == vocabulary[0])
        return true;
    }
    return false;
  }

  std::vector<Sharding> ResultShardings(const Node& node, const FactorRule& rule,
                                        const std::vector<Choice>& choices,
                                        Expansion expansion) const {
    std::vector<Sharding> results;
    for (size_t r = 0; r < node.outputs.size(); ++r) {
      Sharding sharding = FromChoices(rule.results[r], choices);
      for (const Choice& choice : choices) {
        if (expansion == Expansion::kSplitVocabulary && choice.axis == kTensor) continue;  // reduced inside
        if (choice.passes_partial) sharding.partial[choice.axis] = ir::PartialKind::kSum;
        if (choice.factor && !sharding.UsesAxis(choice.axis))
          sharding.partial[choice.axis] = rule.result_partial[r];
      }
      results.push_back(std::move(sharding));
    }
    return results;
  }

  Status SetResults(const Node& node, NodeStrategy& strategy, std::vector<Sharding> results) {
    for (size_t r = 0; r < node.outputs.size(); ++r) {
      const Status valid = mesh::ValidateSharding(graph_.type(node.outputs[r]), results[r], mesh_);
      if (!valid.ok()) return valid;
      result_.values[node.outputs[r]] = results[r];
    }
    strategy.results = std::move(results);
    return OkStatus();
  }

  const Graph& graph_;
  const StageAssignment& stages_;
  const Layout& layout_;
  const int64_t suggest_up_to_;
  const std::set<size_t>& sums_later_;
  const mesh::Mesh mesh_;
  SplitCheck split_check_;
  const IdVector<ValueId, std::vector<NodeId>> users_;
  Strategies result_;
  std::map<ValueId, std::string> gradient_of_;
  std::map<std::string, Sharding> known_params_;
  int64_t tokens_ = 0;  // of a row, once they are split
};

}  // namespace

bool IsWeightCast(const Graph& graph, const Node& node) {
  return node.op == Op::kCast && node.phase == Phase::kForward &&
         graph.producer(node.inputs[0]).op == Op::kParam;
}

Result<Strategies> ChooseStrategies(const Graph& step_graph, const StageAssignment& stages,
                                    const Layout& layout,
                                    const std::map<std::string, Sharding>& known_params,
                                    int64_t max_tensor) {
  if (TensorAxes(layout).size() > 1) {
    return Fail(InvalidArgument(
        fmt::format("the rules split one tensor axis, not a grid of {}; use shardings = \"search\"",
                    fmt::join(layout.tensor_axes, "x"))));
  }
  std::set<size_t> sums_later;
  MW_ASSIGN_OR_RETURN(
      Strategies strategies,
      Chooser(step_graph, stages, layout, known_params, max_tensor, sums_later).Run());
  if (layout.tensor() == 1) return strategies;
  sums_later = AddsOfLaterSums(step_graph, stages, strategies);
  if (sums_later.empty()) return strategies;
  return Chooser(step_graph, stages, layout, known_params, max_tensor, sums_later).Run();
}

}  // namespace meshwright::planner
