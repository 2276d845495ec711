// All-reduces of the update: those that do not depend on each other become one bucket, in the order
// in which their operands are made, and they write over what they reduce.
//
// A device that runs collectives beside kernels begins with a bucket when the last of its operands
// is there (worker/step_list.h). So a bucket holds what is made at about the same time, and those
// that are complete first come first.
//
// A gradient that the backward left in a slot is not needed once it is reduced over the replicas.
// The reduced one becomes an output of the piece in the same slot, which the executor then computes
// in place; as a temporary it would need the memory of all gradients a second time.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "ir/graph.h"
#include "planner/pieces.h"

namespace meshwright::planner {

// Merges all_reduce nodes that do not depend on each other, with equal axes, kind and dtype, into
// buckets of about bucket_bytes (a larger tensor is a bucket of its own). made: per input of the
// graph, any numbers in whose order they are made; empty: all at once.
Result<ir::Graph> CoalesceAllReduces(const ir::Graph& graph, int64_t bucket_bytes,
                                     std::span<const int64_t> made = {});

// What the update all-reduces, and nothing else reads, is reduced in its own slot: the result
// becomes an output of the piece, updated in place.
void ReduceInPlace(Partition& partition);

}  // namespace meshwright::planner
