// Copies a graph node by node, letting a function replace nodes. Layers, phases and outputs are
// kept; ids change.
#pragma once

#include <functional>
#include <vector>

#include "base/result.h"
#include "ir/builder.h"
#include "ir/graph.h"

namespace meshwright::planner {

// Appends the replacement of `node` to the builder and returns one value per output of it. `inputs`
// are the node's operands in the new graph, `types` the types of its results.
using EmitNode = std::function<std::vector<ValueId>(ir::Builder& builder, const ir::Node& node,
                                                    const std::vector<ValueId>& inputs,
                                                    const std::vector<ir::TensorType>& types)>;

Result<ir::Graph> RewriteGraph(const ir::Graph& graph, const EmitNode& emit);

// Without the nodes that no output needs; `input` nodes stay, since callers bind them by position.
Result<ir::Graph> DropDeadNodes(const ir::Graph& graph);

}  // namespace meshwright::planner
