// Buckets: reductions that do not depend on each other become one.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "ir/graph.h"

namespace meshwright::planner {

// Merges all_reduce nodes that do not depend on each other, with equal axes, kind and dtype, into
// buckets of about bucket_bytes (a larger tensor is a bucket of its own).
Result<ir::Graph> CoalesceAllReduces(const ir::Graph& graph, int64_t bucket_bytes);

}  // namespace meshwright::planner
