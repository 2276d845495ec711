// How a value gets from one sharding to another: inside a mesh by collectives, between meshes by
// tiles.
//
// Inside: shortest path over {shard_slice, all_gather, reduce_scatter, all_reduce, all_to_all} with
// a cost per step (bytes: mesh/cost.h; slices are free); where the target is a sum over axes that
// the source is not one of, make_partial is the last step, which moves nothing: the value on the
// first device along them, zeros on the others. States are shardings, Dijkstra finds the
// least cost, memoised by (type, from, to, mesh axes, model). Ties: fewer steps, then a fixed
// order. Axes of size 1 carry nothing: no step and no step's result names them.
//
// Between: every destination element is received exactly once per destination device, from the
// least loaded holder.
//
// Thread rule: thread-safe. The search is exact, not greedy.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "mesh/cost.h"
#include "mesh/sharding.h"

namespace meshwright::mesh {

enum class StepKind : uint8_t {
  kShardSlice,
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  kMakePartial
};

struct ReshardStep {
  StepKind kind = StepKind::kAllGather;
  AxisList axes;      // moved together, major first
  int dim = -1;       // slice, gather, scatter; all_to_all: the dim that becomes split
  int from_dim = -1;  // all_to_all: the dim that becomes whole
  ir::PartialKind partial = ir::PartialKind::kSum;  // all_reduce, reduce_scatter
  Sharding result;                                  // after the step
  friend bool operator==(const ReshardStep&, const ReshardStep&) = default;
};

struct ReshardPath {
  std::vector<ReshardStep> steps;  // empty: nothing to do
  double bytes_per_device = 0;     // received, all steps
  double cost = 0;                 // seconds
};

// Seconds of one step = alpha (per call) + bytes per device x seconds per byte; a slice costs
// nothing. The defaults suit a host's shared memory.
using ReshardCostModel = LinkCost;

// The cheapest path. A target that is partial over an axis keeps the source's summands along it, if
// there are any. Errors: kInvalidArgument when a sharding is not valid; kUnimplemented naming both
// when no path exists (an axis over which `to` is a maximum or a log of sums and `from` is not, or
// over which they are partial of different kinds).
Result<ReshardPath> FindReshardPath(const ir::TensorType& global_type, const Sharding& from,
                                    const Sharding& to, const Mesh& mesh,
                                    const ReshardCostModel& model = {});

// One tile of a transfer between two meshes, in global coordinates and as a box of either side's
// local block.
struct Tile {
  int64_t from_position = 0;  // in the source mesh
  int64_t to_position = 0;    // in the destination mesh
  ir::Box global;
  ir::Box source_local;
  ir::Box destination_local;
  friend bool operator==(const Tile&, const Tile&) = default;
};

// Tiles ordered by to_position, then by source block. Total bytes are the sum of the destination's
// local blocks: no plan that sends whole elements to every holder moves fewer. Deterministic; ties
// go to the lower position. The meshes' devices are not read. Errors: kInvalidArgument when a
// sharding is not valid or is partial.
Result<std::vector<Tile>> PlanTransfer(const ir::TensorType& global_type, const Sharding& from,
                                       const Mesh& from_mesh, const Sharding& to,
                                       const Mesh& to_mesh);

}  // namespace meshwright::mesh
