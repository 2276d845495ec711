// Stage problems of equal layers, and what an answer costs by nothing but its problem, for tests.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "search/stage_search.h"

namespace meshwright::search {

// A class of `hosts`, each with so many devices.
inline StageDeviceClass ClassOf(std::vector<int> hosts, int64_t memory_bytes = 0) {
  return {std::move(hosts), memory_bytes};
}

// An option on n devices whose layers take `layer_s` / n each.
inline StageOption EvenOption(const StageProblem& problem, int device_class, SubmeshShape shape,
                              double layer_s) {
  LayerCost cost;
  cost.compute_s = layer_s / shape.devices();
  return {device_class, shape, 0,
          std::vector<LayerCost>(static_cast<size_t>(problem.layers), cost)};
}

// `layers` equal layers under 1F1B, without options.
inline StageProblem EvenProblem(int layers, int microbatches,
                                std::vector<StageDeviceClass> classes) {
  StageProblem problem;
  problem.layers = layers;
  problem.microbatches = microbatches;
  problem.classes = std::move(classes);
  problem.boundary_bytes.assign(static_cast<size_t>(layers - 1), 1000);
  return problem;
}

struct StageEvaluation {
  double step_s = 0;  // T
  std::string wrong;  // memory, number, layers that no stage has; empty: it may run
};

// Whether the stages have the problem's layers in order and name options.
inline bool IsCover(const StageProblem& problem, std::span<const StageChoice> stages) {
  int next = 0;
  for (const StageChoice& stage : stages) {
    const bool known = stage.option >= 0 && stage.option < static_cast<int>(problem.options.size());
    if (!known || stage.first_layer != next || stage.end_layer <= next) return false;
    next = stage.end_layer;
  }
  return next == problem.layers;
}

inline StageEvaluation EvaluateStages(const StageProblem& problem,
                                      std::span<const StageChoice> stages) {
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
    const StageOption& option = problem.options[static_cast<size_t>(stages[i].option)];
    LayerCost cost;
    for (int layer = stages[i].first_layer; layer < stages[i].end_layer; ++layer) {
      cost += option.layers[static_cast<size_t>(layer)];
    }
    const int in_flight = problem.InFlight(static_cast<int>(stages.size() - i));
    if (InFlightMax(problem, stages[i].option, cost) < in_flight) {
      evaluation.wrong = fmt::format(
          "stage {} does not fit its devices with {} microbatches in flight", i, in_flight);
    }
    double period_s = cost.compute_s;
    if (i + 1 < stages.size()) {
      period_s += problem.TransferSeconds(
          option.port, problem.options[static_cast<size_t>(stages[i + 1].option)].port,
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
