#include "ir/training_flops.h"

#include "ir/schema.h"

namespace meshwright::ir {

double TrainingFlops(const JobRequest& job) {
  const JobProgram* const trained = job.trained();
  if (trained == nullptr) return 0;
  double flops = 0;
  for (const Node& node : trained->graph.nodes) flops += CostOf(trained->graph, node).flops;
  return 3 * flops;
}

}  // namespace meshwright::ir
