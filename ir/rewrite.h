// Copies a graph node by node, letting a function replace nodes. Layers, phases and outputs are
// kept; ids change.
#pragma once

#include <functional>
#include <vector>

#include "base/result.h"
#include "ir/builder.h"
#include "ir/graph.h"

namespace meshwright::ir {

// Appends the replacement of `node` to the builder and returns one value per output of it. `inputs`
// are the node's operands in the new graph, `types` the types of its results.
using EmitNode = std::function<std::vector<ValueId>(Builder& builder, const Node& node,
                                                    const std::vector<ValueId>& inputs,
                                                    const std::vector<TensorType>& types)>;

Result<Graph> RewriteGraph(const Graph& graph, const EmitNode& emit);

// Appends `node` of `graph` with other operands: its layer and phase, results of the types it has.
std::vector<ValueId> AddLike(Builder& builder, const Graph& graph, const Node& node,
                             std::vector<ValueId> inputs);
// The node as it is, on operands that `map` knows; it knows the results then. REQUIRES: `map` has a
// place for each value of `graph`.
void CopyNode(Builder& builder, const Graph& graph, const Node& node,
              IdVector<ValueId, ValueId>& map);

// Without the nodes that no output needs; `input` nodes stay, since callers bind them by position.
Result<Graph> DropDeadNodes(const Graph& graph);

}  // namespace meshwright::ir
