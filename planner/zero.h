// ZeRO: what replicas hold in common is split over them.
//
// Stage 1 splits the optimizer's state: a replica renews its block of every weight and gathers the
// others'. Stage 2 also splits the gradients: each is reduce-scattered when the backward has made
// it, once per microbatch, so that only a block is ever summed up. Stage 3 also splits the weights:
// every piece that reads one gathers it first. In the language of shardings: the axes of
// planner/zero_levels.h split the operands of the optimizer's nodes (1), the sums of gradients (2),
// the params (3); collectives follow from the shardings.
//
// A float32 weight that microbatches read as a narrow copy alone is the optimizer's state and
// nobody else's: from stage 1 on it is split as that is. Its copy is made of the block and then
// gathered, once per step (piece z), so that no device ever has all of the float32 weight.
//
// Bytes per replica and step, n parameters, q replicas, factor (q-1)/q on each: reduce-scatter of
// gradients n, all-gather of weights (or of their copies) n; stage 3: 2n (forward, backward) per
// microbatch instead. Of groups of g < q that split gradients or weights the factor is (g-1)/g for
// each microbatch, and what is left between groups moves once per step.
//
// Thread rule: pure functions. Source: Rajbhandari et al., "ZeRO", SC'20, sections 5 and 7.
#pragma once

#include <map>
#include <string>

#include "ir/graph.h"
#include "mesh/sharding.h"
#include "planner/strategy.h"

namespace meshwright::planner {

// Smaller weights are split in no case: blocks of them are a few numbers.
inline constexpr int64_t kZeroMinBytes = 1024;

// Splits what layout.zero says over the data axis. Weights of which a device has less than
// min_bytes stay whole on every replica: a collective of their own costs more than they do. So do
// those of which no dim divides, with a note. REQUIRES: `strategies` is by ChooseStrategies for
// this graph and layout.
void ApplyZero(const ir::Graph& step_graph, const Layout& layout, Strategies& strategies,
               int64_t min_bytes = kZeroMinBytes);

// Makes `strategies`, which were chosen for weights that are whole over "data", read params that
// are sharded as `params` says; copies of weights are kept as the layout's microbatches read them.
void ReadShardedParams(const ir::Graph& graph, const Layout& layout,
                       const std::map<std::string, mesh::Sharding>& params, Strategies& strategies);

// The params as a graph sees them that reads them whole over "data".
std::map<std::string, mesh::Sharding> WholeOverData(const Layout& layout,
                                                    std::map<std::string, mesh::Sharding> params);

}  // namespace meshwright::planner
