// What a node does within itself where an axis splits what its op needs whole: the local nodes,
// with their collectives, that stand for it.
//
// A strategy names an expansion (planner/strategy.h); its row says how it is emitted and on which
// meshes it is one. The local nodes are priced, verified and simulated like any others.
//
// Thread rule: pure functions; the table is immutable.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/builder.h"
#include "ir/graph.h"
#include "mesh/sharding.h"

namespace meshwright::planner {

struct NodeStrategy;

enum class Expansion : uint8_t {
  kNone,
  // cross_entropy over a split vocabulary: logsumexp + pick + nll, the first two reduced.
  kSplitVocabulary,
  // layer_norm, rms_norm or their gradients over a split width: each mean is a sum over devices,
  // one number a row.
  kSplitWidth,
  // A sum whose operands differ in their shardings: those that are alike are summed first, so that
  // each kind of partial sum is reduced once, to the result's sharding.
  kGroupedSum,
  // Attention whose keys stay split: blocks of keys and values go round the ring of the axes, what
  // queries see of them is added up by log-sum-exps, and gradients travel behind their blocks.
  kRingAttention,
};

// One node to emit, with local operands.
struct ExpandCall {
  ir::Builder& builder;
  const ir::Graph& graph;
  const ir::Node& node;
  const NodeStrategy& strategy;
  const std::vector<ValueId>& inputs;
  const mesh::Mesh& mesh;
};

// Appends the nodes; one value per result of the node. Errors stick to the builder. REQUIRES: the
// strategy has an expansion.
std::vector<ValueId> Expand(const ExpandCall& call);

// What a strategy's expansion reduces within the node, for who prices it: `count` all-reduces over
// `axes` of a value with the dims and sharding of this operand or result. None where it reduces
// nothing, or does so by reshards.
struct InnerSums {
  int count = 0;
  ValueId like;
  mesh::Sharding sharding = {};
  mesh::AxisList axes = {};
};
InnerSums InnerSumsOf(const ir::Node& node, const NodeStrategy& strategy);

// What is left of it on a mesh that lacks some of its axes: the expansion, or none.
Expansion OnMesh(const NodeStrategy& strategy);

}  // namespace meshwright::planner
