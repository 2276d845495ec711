#include "search/stage_problem.h"

#include <fmt/format.h>

#include <algorithm>

namespace meshwright::search {
namespace {

const StageOption& OptionOf(const StageProblem& problem, int option) {
  return problem.options[static_cast<size_t>(option)];
}

// Whether the stages have the problem's layers in order and name options.
bool IsCover(const StageProblem& problem, std::span<const StageChoice> stages) {
  int next = 0;
  for (const StageChoice& stage : stages) {
    const bool known = stage.option >= 0 && stage.option < static_cast<int>(problem.options.size());
    if (!known || stage.first_layer != next || stage.end_layer <= next) return false;
    next = stage.end_layer;
  }
  return next == problem.layers;
}

}  // namespace

void AddLayerCost(LayerCost& sum, const LayerCost& cost) {
  sum.compute_s += cost.compute_s;
  sum.tail_s += cost.tail_s;
  sum.state_bytes += cost.state_bytes;
  sum.activation_bytes += cost.activation_bytes;
  sum.transient_bytes = std::max(sum.transient_bytes, cost.transient_bytes);
}

int InFlightMax(const StageProblem& problem, int option, const LayerCost& cost) {
  const auto device_class = static_cast<size_t>(OptionOf(problem, option).device_class);
  const int64_t memory_bytes = problem.classes[device_class].memory_bytes;
  if (memory_bytes == 0) return problem.microbatches;
  const int64_t left_bytes = memory_bytes - cost.state_bytes - cost.transient_bytes;
  if (left_bytes < 0) return -1;
  if (cost.activation_bytes == 0) return problem.microbatches;
  return static_cast<int>(
      std::min<int64_t>(left_bytes / cost.activation_bytes, problem.microbatches));
}

StageEvaluation EvaluateStages(const StageProblem& problem, std::span<const StageChoice> stages) {
  StageEvaluation evaluation;
  if (!IsCover(problem, stages)) {
    evaluation.wrong =
        fmt::format("the {} stages do not have {} layers in order", stages.size(), problem.layers);
    return evaluation;
  }
  if (problem.stages > 0 && problem.stages != static_cast<int>(stages.size())) {
    evaluation.wrong = fmt::format("{} stages instead of {}", stages.size(), problem.stages);
  }
  double most_period_s = 0;
  double most_tail_s = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    const StageOption& option = OptionOf(problem, stages[i].option);
    LayerCost cost;
    for (int layer = stages[i].first_layer; layer < stages[i].end_layer; ++layer) {
      AddLayerCost(cost, option.layers[static_cast<size_t>(layer)]);
    }
    const int in_flight = problem.InFlight(static_cast<int>(stages.size() - i));
    if (InFlightMax(problem, stages[i].option, cost) < in_flight) {
      evaluation.wrong = fmt::format(
          "stage {} does not fit its devices with {} microbatches in flight", i, in_flight);
    }
    double period_s = cost.compute_s;
    if (i + 1 < stages.size()) {
      period_s += problem.TransferSeconds(option.port, OptionOf(problem, stages[i + 1].option).port,
                                          stages[i].end_layer);
    }
    evaluation.step_s += period_s;
    most_period_s = std::max(most_period_s, period_s);
    most_tail_s = std::max(most_tail_s, cost.tail_s);
  }
  evaluation.step_s += (problem.microbatches - 1) * most_period_s + most_tail_s;
  return evaluation;
}

}  // namespace meshwright::search
