// EvaluateStages: an answer's cost and violations from the problem alone, by the formulas of
// stage_problem.h and none of the search's tables.
#include <fmt/format.h>

#include <algorithm>

#include "search/stage_problem.h"

namespace meshwright::search {
namespace {

const StageOption& OptionOf(const StageProblem& problem, const StageChoice& stage) {
  return problem.options[static_cast<size_t>(stage.option)];
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

StageNumbers NumbersOf(const StageProblem& problem, std::span<const StageChoice> stages, size_t i) {
  const StageChoice& stage = stages[i];
  const PipelineModel& schedule = problem.schedule;
  const LayerCost cost = RangeCost(problem, stage.option, stage.first_layer, stage.end_layer);
  StageNumbers numbers;
  numbers.compute_s = cost.forward_s + cost.backward_s;
  if (i + 1 < stages.size() && problem.transfer_s) {
    numbers.transfer_s =
        problem.transfer_s(OptionOf(problem, stage).port, OptionOf(problem, stages[i + 1]).port,
                           problem.boundary_bytes[static_cast<size_t>(stage.end_layer - 1)]);
  }
  const double delayed_s = schedule.delayed_weight * cost.weight_s;
  numbers.period_s = numbers.compute_s + numbers.transfer_s;
  numbers.fill_s = numbers.compute_s + numbers.transfer_s - delayed_s;
  numbers.tail_s = cost.update_s + cost.gradient_sync_s + delayed_s;
  numbers.in_flight = schedule.in_flight(static_cast<int>(stages.size() - i), problem.microbatches);
  numbers.memory_bytes = StageMemoryBytes(cost, numbers.in_flight);
  const auto device_class = static_cast<size_t>(OptionOf(problem, stage).device_class);
  const int64_t memory_bytes = problem.classes[device_class].memory_bytes;
  if (memory_bytes > 0) {
    numbers.over_bytes = std::max<int64_t>(0, numbers.memory_bytes - memory_bytes);
  }
  return numbers;
}

void CheckMemory(const StageProblem& problem, std::span<const StageChoice> stages,
                 StageEvaluation& evaluation) {
  int64_t most_bytes = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    const int64_t over_bytes = evaluation.stages[i].over_bytes;
    if (over_bytes == 0) continue;
    evaluation.violations.push_back(
        fmt::format("{} needs {} bytes, {} more than a device has, with {} microbatches in flight",
                    FormatStage(problem, stages, static_cast<int>(i)),
                    evaluation.stages[i].memory_bytes, over_bytes, evaluation.stages[i].in_flight));
    if (over_bytes <= most_bytes) continue;
    most_bytes = over_bytes;
    evaluation.worst_stage = static_cast<int>(i);
  }
}

void PlaceStages(const StageProblem& problem, std::span<const StageChoice> stages,
                 StageEvaluation& evaluation) {
  for (size_t c = 0; c < problem.classes.size(); ++c) {
    std::vector<SubmeshShape> shapes;
    std::vector<size_t> owners;
    for (size_t i = 0; i < stages.size(); ++i) {
      if (OptionOf(problem, stages[i]).device_class != static_cast<int>(c)) continue;
      shapes.push_back(OptionOf(problem, stages[i]).shape);
      owners.push_back(i);
    }
    auto places = PackSubmeshes(problem.classes[c].host_devices, shapes);
    if (!places) {
      evaluation.violations.push_back(fmt::format("{} submeshes do not fit the hosts of class {}",
                                                  shapes.size(), problem.classes[c].name));
      continue;
    }
    for (size_t i = 0; i < owners.size(); ++i) {
      evaluation.stages[owners[i]].place = std::move((*places)[i]);
    }
  }
}

void CheckAgainstPins(const StagePins& pins, std::span<const StageChoice> stages,
                      std::vector<std::string>& violations) {
  std::vector<int> begins;
  for (const StageChoice& stage : stages) begins.push_back(stage.first_layer);
  if (pins.begins && *pins.begins != begins) violations.push_back("stages begin elsewhere");
  if (pins.stages && *pins.stages != static_cast<int>(stages.size())) {
    violations.push_back(fmt::format("{} stages instead of {}", stages.size(), *pins.stages));
  }
  for (const StagePins::Option& pin : pins.options) {
    const auto stage = static_cast<size_t>(pin.stage);
    if (stage < stages.size() && stages[stage].option == pin.option) continue;
    violations.push_back(fmt::format("stage {} has another option than {}", pin.stage, pin.option));
  }
}

}  // namespace

StageEvaluation EvaluateStages(const StageProblem& problem, std::span<const StageChoice> stages) {
  StageEvaluation evaluation;
  if (!IsCover(problem, stages)) {
    evaluation.violations.push_back(
        fmt::format("the {} stages do not have {} layers in order", stages.size(), problem.layers));
    return evaluation;
  }
  double period_s = 0, tail_s = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    evaluation.stages.push_back(NumbersOf(problem, stages, i));
    const StageNumbers& numbers = evaluation.stages.back();
    evaluation.step_s += numbers.fill_s;
    period_s = std::max(period_s, numbers.period_s);
    tail_s = std::max(tail_s, numbers.tail_s);
  }
  evaluation.step_s += (problem.microbatches - 1) * period_s + tail_s;
  CheckMemory(problem, stages, evaluation);
  PlaceStages(problem, stages, evaluation);
  CheckAgainstPins(problem.pins, stages, evaluation.violations);
  return evaluation;
}

}  // namespace meshwright::search
