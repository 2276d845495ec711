// Which pipeline stage computes what.
//
// Layers are split into contiguous parts that minimise the most expensive part (forward + backward
// FLOPs); a stage holds one part or several (planner/schedule.h). A node with a layer runs in that
// layer's part. Cheap nodes without one run wherever they are needed, if need be in several: what
// only depends on feeds (labels of the last part), scalars of the update, the sum of a tied
// weight's gradients. A param is held by every stage that reads it in forward or backward; the
// first is its owner, who alone counts it in the norm.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"
#include "planner/schedule.h"

namespace meshwright::planner {

struct StageAssignment {
  PipelineShape shape;
  std::vector<int> part_of_layer;
  // Per node, ascending; empty for params and of the update in node_parts.
  std::vector<std::vector<int>> node_parts;
  std::vector<std::vector<int>> node_stages;
  std::map<std::string, std::vector<int>> param_stages;  // holders, owner first
  // Of the backward: makes gradients of weights only, which nothing but the update reads.
  std::vector<bool> is_weight_gradient;
  int stage_count() const { return shape.stages; }
  int last_stage() const { return shape.StageOf(shape.parts() - 1); }
};

int LayerCount(const ir::Graph& graph);

// Writes the layer that a node is computed with into nodes that have none (ir/layers.h), so that
// their gradients stay in their stage. A graph without layers stays as it is.
ir::Graph FillLayers(ir::Graph loss);

// Parts of the first `layers` layers, balanced by FLOPs of the step graph (planner/
// balance_parts.h). REQUIRES: parts <= layers, or no layers.
std::vector<int> BalanceLayers(const ir::Graph& step_graph, int layers, int parts);

// REQUIRES: step_graph made by ir::AppendUpdate, or a forward graph with Phase::kUpdate reports.
Result<StageAssignment> AssignStages(const ir::Graph& step_graph, std::vector<int> part_of_layer,
                                     const PipelineShape& shape);

// Gradients of one part that meet in the update are summed in its backward: one tensor, not one
// per use, lives and accumulates over microbatches. Ids stay.
ir::Graph SumGradientsInBackward(ir::Graph step_graph, const StageAssignment& stages);

// Rewrites every scalar `sum` whose operands live in several stages into sums per stage and a sum
// of those, so that one scalar per stage crosses. The graph's ids change.
Result<ir::Graph> SplitScalarSums(const ir::Graph& step_graph, const StageAssignment& stages);

}  // namespace meshwright::planner
