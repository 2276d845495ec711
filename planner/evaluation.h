// The validation graph of a training job: the loss without dropout, reading the validation split,
// summed over a batch.
#pragma once

#include "base/result.h"
#include "ir/graph.h"

namespace meshwright::planner {

// Outputs "loss_sum" and "count" of the result are update nodes: they are summed over microbatches
// and data shards.
Result<ir::Graph> MakeEvaluationGraph(const ir::Graph& loss);

}  // namespace meshwright::planner
