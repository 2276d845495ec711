#include "search/intra_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "search/choice_problem.h"
#include "search/intra_model.h"

namespace meshwright::search {
namespace {

using ir::Node;
using mesh::Sharding;
using planner::kMicro;
using planner::NodeStrategy;
using planner::Strategies;
using planner::WithoutAxis;

class Decoder {
 public:
  Decoder(const IntraModel& model, std::span<const int> choices)
      : model_(model), choices_(choices) {}

  Strategies Run() {
    result_ = model_.base;
    result_.params.clear();
    for (size_t i = 0; i < model_.graph->nodes.size(); ++i) SetNode(i);
    for (size_t i = 0; i < model_.graph->nodes.size(); ++i) SetForms(i);
    return std::move(result_);
  }

 private:
  template <typename T>
  const T& Chosen(int variable, const std::vector<T>& list) const {
    return list[static_cast<size_t>(choices_[static_cast<size_t>(variable)])];
  }
  const Variable& At(int variable) const { return model_.variables[static_cast<size_t>(variable)]; }

  void SetNode(size_t index) {
    const Node& node = model_.NodeAt(index);
    const int variable = model_.VariableOf(index);
    NodeStrategy& strategy = result_.nodes[index];
    if (variable != kNoVariable && node.op == ir::Op::kParam) {
      result_.params[node.attrs.Str("name")] = Chosen(variable, At(variable).shardings);
      return;
    }
    if (variable != kNoVariable) strategy = Chosen(variable, At(variable).strategies);
    if (strategy.expansion == planner::Expansion::kGroupedSum) {
      for (size_t o = 0; o < node.inputs.size(); ++o) {
        strategy.operands[o] = WithoutAxis(ValueOf(node.inputs[o]), kMicro);
      }
    }
    for (size_t r = 0; r < node.outputs.size() && r < strategy.results.size(); ++r) {
      ValueOf(node.outputs[r]) = strategy.results[r];
    }
    if (model_.IsOptimizer(index)) SetState(node, strategy);
  }

  Sharding& ValueOf(ValueId value) { return result_.values[value]; }

  // State is stored as the optimizer reads it.
  void SetState(const Node& node, const NodeStrategy& strategy) {
    for (size_t o = 0; o < node.inputs.size(); ++o) {
      const size_t producer = model_.ProducerOf(node.inputs[o]);
      if (!model_.IsState(producer)) continue;
      result_.params[model_.NodeAt(producer).attrs.Str("name")] = strategy.operands[o];
    }
  }

  // How its values get to their readers, where that is not as they are produced.
  void SetForms(size_t index) {
    const Node& node = model_.NodeAt(index);
    const bool weight = node.op == ir::Op::kParam || planner::IsWeightCast(*model_.graph, node);
    for (size_t r = 0; r < node.outputs.size(); ++r) {
      const ValueId value = node.outputs[r];
      const auto set = [&](Audience audience, std::initializer_list<ir::Phase> phases) {
        const auto it = model_.forms.find({model_.first[index], static_cast<int>(r), audience});
        if (it == model_.forms.end()) return;
        const Sharding& form = Chosen(it->second, At(it->second).shardings);
        const Sharding& made =
            node.op == ir::Op::kParam ? result_.params.at(node.attrs.Str("name")) : ValueOf(value);
        if (form == WithoutAxis(made, kMicro)) return;
        const bool summed = audience == Audience::kUpdate && model_.options.microbatches > 1;
        if (summed && node.phase == ir::Phase::kBackward) {
          result_.kept_as[value] = form;
          return;
        }
        for (ir::Phase phase : phases) result_.forms[{value, phase}] = form;
      };
      set(Audience::kUpdate, {ir::Phase::kUpdate});
      set(Audience::kBackward, {ir::Phase::kBackward});
      if (weight) {
        set(Audience::kForward, {ir::Phase::kForward});
      } else {
        set(Audience::kForward, {ir::Phase::kForward, ir::Phase::kBackward});
      }
    }
  }

  const IntraModel& model_;
  const std::span<const int> choices_;
  Strategies result_;
};

Result<ChoiceAnswer> SolveInBudget(const ChoiceProblem& problem, SolveOptions options,
                                   double budget_gap, const Clock& clock) {
  MW_ASSIGN_OR_RETURN(const ChoiceAnswer free,
                      SolveChoices(WithoutMoments(problem), options, clock));
  if (EvaluateChoices(problem, free.choices).feasible()) return free;
  options.gap = std::max(options.gap, budget_gap);
  MW_ASSIGN_OR_RETURN(ChoiceAnswer answer, SolveChoices(problem, options, clock));
  answer.bound_s = std::max(answer.bound_s, free.bound_s);
  return answer;
}

std::string PinNames(const IntraPins& pins) {
  std::vector<std::string> names;
  for (const auto& [name, sharding] : pins.params) names.push_back("param " + name);
  for (const std::string& axis : pins.batch_axes) names.push_back("batch axis " + axis);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Result<IntraAnswer> SearchIntra(const ir::Graph& graph, const planner::StageAssignment& stages,
                                const IntraOptions& options, const IntraCosts& costs,
                                const Clock& clock, const SolveOptions& solve) {
  MW_ASSIGN_OR_RETURN(const IntraModel model, MakeIntraModel(graph, stages, options, costs));
  const ChoiceProblem& problem = model.problem;
  const Result<ChoiceAnswer> answer = SolveInBudget(problem, solve, options.budget_gap, clock);
  if (!answer.has_value()) {
    const std::string pins = PinNames(options.pins);
    const bool alone = !pins.empty() && answer.error().code() == StatusCode::kResourceExhausted &&
                       !SolveChoices(WithoutMoments(problem), solve, clock).has_value();
    if (alone) {
      return Fail(InvalidArgument(
          fmt::format("the pins ({}) allow no shardings together; leave one of them out", pins)));
    }
    return Fail(answer.error().WithContext(
        fmt::format("shardings within {} bytes per device", options.budget_bytes)));
  }
  const ChoiceEvaluation evaluation = EvaluateChoices(problem, answer->choices);
  if (!evaluation.feasible()) return Fail(Internal("the solver's choices do not fit"));
  return IntraAnswer{.strategies = Decoder(model, answer->choices).Run(),
                     .step_s = evaluation.cost_s,
                     .bound_s = std::min(answer->bound_s, evaluation.cost_s),
                     .left_bytes = evaluation.left_bytes,
                     .decider = answer->decider};
}

}  // namespace meshwright::search
