// Stage problems of equal layers, for tests.
#pragma once

#include <utility>
#include <vector>

#include "search/stage_problem.h"

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

}  // namespace meshwright::search
