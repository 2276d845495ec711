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

// What is left of it on a mesh that lacks some of its axes: the expansion, or none.
Expansion OnMesh(const NodeStrategy& strategy);

}  // namespace meshwright::planner
