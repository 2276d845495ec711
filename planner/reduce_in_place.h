// All-reduces of the update: those that do not depend on each other become one bucket, and they
// write over what they reduce.
//
// A gradient that the backward left in a slot is not needed once it is reduced over the replicas.
// The reduced one becomes an output of the piece in the same slot, which the executor then computes
// in place; as a temporary it would need the memory of all gradients a second time.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "ir/graph.h"
#include "planner/pieces.h"

namespace meshwright::planner {

// Merges all_reduce nodes that do not depend on each other, with equal axes, kind and dtype, into
// buckets of about bucket_bytes (a larger tensor is a bucket of its own).
Result<ir::Graph> CoalesceAllReduces(const ir::Graph& graph, int64_t bucket_bytes);

// What the update all-reduces, and nothing else reads, is reduced in its own slot: the result
// becomes an output of the piece, updated in place.
void ReduceInPlace(Partition& partition);

}  // namespace meshwright::planner
