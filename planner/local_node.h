// One logical node as the local nodes of a shard: local shapes, global offsets, collectives.
#pragma once

#include <optional>
#include <vector>

#include "base/result.h"
#include "ir/builder.h"
#include "ir/graph.h"
#include "mesh/sharding.h"
#include "planner/strategy.h"

namespace meshwright::planner {

// Appends the node with local operands; returns its results. Errors stick to the builder.
std::vector<ValueId> EmitLocalNode(ir::Builder& builder, const ir::Graph& graph,
                                   const ir::Node& node, const NodeStrategy& strategy,
                                   const std::vector<ValueId>& inputs, const mesh::Mesh& mesh);

// Writes where the block of a tensor of the global type lies; nothing where it is whole.
void SetOffsets(ir::Attrs& attrs, const ir::TensorType& global, const mesh::Sharding& sharding);
// The attributes of the node as a local one.
ir::Attrs LocalAttrs(const ir::Graph& graph, const ir::Node& node, const NodeStrategy& strategy,
                     const mesh::Mesh& mesh);

// How the node that makes `value` computes only the block `wanted` of it: the strategy that splits
// its other operands and results alike. None when `wanted` is partial or splits what the op needs
// whole.
std::optional<NodeStrategy> BlockStrategy(const ir::Graph& graph, ValueId value,
                                          const mesh::Sharding& wanted, const mesh::Mesh& mesh);

// Appends the collectives that take a local block from one sharding to another. Both must agree on
// the micro axis, which no collective can change.
Result<ValueId> EmitReshard(ir::Builder& builder, const ir::TensorType& global_type, ValueId local,
                            const mesh::Sharding& from, const mesh::Sharding& to,
                            const mesh::Mesh& mesh);

// The initial value of a param's local block by its "init" attribute.
ValueId EmitInitialValue(ir::Builder& builder, const ir::Node& param,
                         const ir::TensorType& global_type, const mesh::Sharding& sharding,
                         const ir::TensorType& local_type);

}  // namespace meshwright::planner
