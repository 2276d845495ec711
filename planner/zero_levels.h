// ZeRO by level: how many replicas split each kind of state, and along which part of the data axis.
//
// All replicas may split everything. Or only those near each other do, and groups of them hold the
// same: the data axis is then cut into sub-axes, "data" over the slowest links, then "data2", ..,
// the last one over the fastest. A kind of state is split along the last ones of them, so that
// groups lie in one another: weights over few neighbours, gradients over more, the optimizer's
// state over most. With one group of each kind for all replicas there is one axis, "data".
//
//   data=8, groups of 8, 4 and 2: data=2 x data2=2 x data3=2
//   optimizer [data3, data2, data]   gradients [data3, data2]   weights [data3]
//
// In a dim the last sub-axis comes first: what is gathered over the others is then a block of what
// the innermost group splits.
//
// Thread rule: pure functions. Source: Rajbhandari et al., "ZeRO", SC'20; the sub-axes are those of
// hybrid sharding (FSDP), hpZ (ZeRO++) and low-bandwidth partitioning (Frontier).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/job.h"
#include "ir/program.h"
#include "mesh/sharding.h"
#include "planner/layout.h"

namespace meshwright::planner {

// Float32 weights that microbatches read as narrow copies are state of the optimizer.
enum class ZeroKind : uint8_t { kOptimizer, kGradients, kWeights };

// One level, with its place in a job, in a layout and in texts.
struct ZeroLevel {
  ZeroKind kind;
  const char* name;     // of the state
  int64_t first_stage;  // of ZeRO, that splits it
  int64_t ZeroGroups::*group;
  int64_t ir::ParallelSpec::*pin;
  const char* field;  // of errors
};
// From the widest groups to the narrowest.
std::span<const ZeroLevel> ZeroLevels();

// Of `replicas`, those of one group that splits state of this kind, at the stages that split it.
int64_t GroupSize(int64_t replicas, const ZeroGroups& groups, ZeroKind kind);
// Replicas that split state of this kind; 1: each has all of it.
int64_t ZeroDegree(int64_t replicas, int64_t stage, const ZeroGroups& groups, ZeroKind kind);
int64_t ZeroDegree(const Layout& layout, ZeroKind kind);

// The data axis of a stage of `data` replicas, major first; where groups are asked for, its parts.
std::vector<ir::MeshAxis> DataAxes(const Layout& layout, int64_t data);
// Those of them that split state of this kind, in the order of a dim.
mesh::AxisList ZeroAxes(const Layout& layout, ZeroKind kind);

// `sharding`, which splits what the optimizer has, as state of this kind is split.
mesh::Sharding AsOfKind(mesh::Sharding sharding, const Layout& layout, ZeroKind kind);

// The groups that the pins ask for. Errors: kInvalidArgument naming the pin: sizes that do not
// divide each other; beside searched shardings or stages that differ, which have one data axis.
Result<ZeroGroups> ZeroGroupsOf(const ir::ParallelSpec& pins);
// Whether they divide the replicas of the layout. Errors: kInvalidArgument, with those that would.
Status CheckZeroGroups(const Layout& layout);
// Groups for fewer replicas: the largest of at most these sizes that divide them.
void ShrinkZeroGroups(int64_t replicas, ir::ParallelSpec& pins);

// "optimizer over data3,data2,data (8), gradients over ..": empty: nothing is split.
std::string FormatZeroLevels(const Layout& layout);

}  // namespace meshwright::planner
