// Cuts a staged graph whose shardings are chosen into what each stage runs: local graphs with
// explicit collectives, and what crosses between them.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "ir/graph.h"
#include "planner/layout.h"
#include "planner/pieces.h"
#include "planner/stages.h"
#include "planner/strategy.h"

namespace meshwright::planner {

// Errors: kInternal when a strategy cannot be expressed (a planner defect), with the node;
// kInvalidArgument: what microbatches cannot say, with the way out.
Result<Partition> MakePartition(const ir::Graph& graph, const StageAssignment& stages,
                                const Strategies& strategies, const Layout& layout,
                                int64_t bucket_bytes);

}  // namespace meshwright::planner
