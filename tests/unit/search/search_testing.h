// Step graphs, meshes and counts of collectives for tests of searches.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "ir/autodiff.h"
#include "ir/builder.h"
#include "ir/graph.h"
#include "ir/job.h"
#include "models/gpt2.h"
#include "planner/pieces.h"
#include "planner/stages.h"
#include "search/intra_problem.h"

namespace meshwright::search {

struct Staged {
  ir::Graph graph;
  planner::StageAssignment stages;
};

// The training step of a loss, as the planner makes it.
Result<Staged> StepOf(const ir::Graph& loss, int stage_count = 1,
                      const ir::OptimizerSpec& optimizer = {});

// Tokens -> embedding of `width` -> `layers` products with square weights, gelu between -> the loss
// sum of squares. Rows: batch x sequence.
struct MlpOptions {
  int64_t batch = 16;
  int64_t sequence = 16;
  int64_t width = 32;
  int layers = 6;
  bool activation = true;
};
ir::Graph MlpLoss(const MlpOptions& options);

// GPT-2's loss graph.
Result<ir::Graph> Gpt2Loss(const models::Gpt2Config& config, int64_t batch, int64_t sequence,
                           ir::DType dtype = ir::DType::kF32);

// A GPT-2 of `layers` blocks of width 64, 8 rows of 32 tokens: planned in milliseconds. Degrees are
// those that ir::ParallelSpec has.
ir::JobRequest SmallGpt2Job(int layers);
// One of four blocks whose layout is all open.
ir::JobRequest OpenJob();

// Collectives of all pieces, by op name; those on scalars left out.
std::map<std::string, int> CollectivesOf(const planner::Partition& partition);

}  // namespace meshwright::search
