// Which pipeline stage computes what.
//
// Layers are split into contiguous parts that minimise the most expensive part (forward + backward
// FLOPs); a stage holds one part or several (planner/schedule.h). A node with a layer runs in that
// layer's part. Cheap nodes without one run wherever they are needed, if need be in several: what
// only depends on feeds (labels of the last part), scalars of the update, the sum of a tied
// weight's gradients. A param is held by every stage that reads it in forward or backward; the
// first is its owner, who alone counts it in the norm.
//
// Parts are balanced exactly. A bound of the slowest part's time comes first, by bisection: parts
// that take as many layers as fit below it reach the end or do not. It leaves few ends of each part
// to the exact recurrence over (part, end), so n layers in k parts take O(k log n) for the bound
// and little more than O(n^2 / k) for the rest where layers are alike.
//
// Thread rule: pure functions.
#pragma once

#include <map>
#include <span>
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

// Per node whether it is a constant, or what forward and backward make of constants alone: it has
// no place, and who reads it computes the block that it needs.
std::vector<bool> FindConstants(const ir::Graph& graph);

// Writes the layer that a node is computed with into nodes that have none (ir/layers.h), so that
// their gradients stay in their stage. A graph without layers stays as it is.
ir::Graph FillLayers(ir::Graph loss);

// Parts of the first `layers` layers, balanced by FLOPs of the step graph. REQUIRES: parts <=
// layers, or no layers.
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

// Per layer its part. `sum_of_part`: per part the seconds of the first 0, 1, ... n layers where the
// part runs; parts may differ in speed. Ties give later parts fewer layers.
// REQUIRES: 1 <= parts <= n; sums do not fall.
std::vector<int> BalanceParts(std::span<const std::span<const double>> sum_of_part);

}  // namespace meshwright::planner
