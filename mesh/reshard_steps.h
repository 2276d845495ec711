// The moves of a reshard: every single step that leads from one sharding to another.
//
// clang-format off
//   shard_slice     appends unused axes to a dim
//   all_gather      removes the minor-most axes of a dim
//   all_to_all      the minor-most axes of a dim become the minor-most axes of another
//   reduce_scatter  partial(sum) axes become the minor-most axes of a dim
//   all_reduce      any axes that are partial alike become replicated
// clang-format on
// Several axes may move together, major first; sizes always divide. For searches: that
// of paths (reshard.cc), and that of costs alone (search/reshard_table.h). make_partial is not
// among them: it can wait until all others are done.
//
// Thread rule: pure functions.
#pragma once

#include <vector>

#include "mesh/reshard.h"

namespace meshwright::mesh {

// All steps from `from`, in a fixed order. REQUIRES: `from` is valid and names no axis of size 1.
std::vector<ReshardStep> StepsFrom(const ir::Dims& global, const Sharding& from, const Mesh& mesh);

// Bytes that one device receives in `step`, which starts from `local_bytes` per device.
double BytesOfStep(const ReshardStep& step, double local_bytes, const Mesh& mesh);

}  // namespace meshwright::mesh
