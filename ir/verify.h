// Verifiers: pure checks that run before anything is launched.
//
// VerifyGraph: ids, order, types (InferTypes agrees with the stored types), layers, outputs.
// VerifyLossGraph: what training needs beyond that, and the planner can express.
// VerifyPrograms: all programs of a job at once, by abstract execution with bounded channels.
// Programs of one name form one launch. Rejects, naming program and instruction: use before
// definition, use after free, double free, overwriting a live slot, a slot that leaks at the end,
// tiles that overlap or do not cover, operand/result types that differ from the executable's,
// SEND/RECV that do not pair in order, shape and dtype, a different order of collectives within a
// group, a waiting cycle under the channels' capacities, overlapping arena ranges of live slots
// (but for what ir/program.h allows within a RUN), peak memory above the budget.
//
// A list of instructions can be well-formed and still mean something else than the planner said:
// the right slots in the wrong order. These rules make an instruction that is dropped, repeated or
// moved show, unless it makes no difference:
//  1. Cadence. An executable with a forward or backward node (other than `input`, `constant`,
//     `random_normal`, `learning_rate`) runs exactly once for every microbatch, in increasing
//     order; one with update nodes or only constants runs exactly once, as microbatch 0. One of
//     constants and update casts alone comes before the microbatches, other update work behind
//     them. Every executable runs.
//  2. In-place order. Accesses to one slot, at least one of which writes it in place, follow
//     (constants and casts of what is there before the step, microbatch work, update), then the
//     microbatch, then the number of the executable. So accumulators are complete before the update
//     reads them, weights are not updated before their last use, and executables of one cadence
//     that update the same slot are numbered in the order in which they run.
//  3. In place only where the kernel may: nothing reads the donated input after the node that first
//     writes the output.
//  4. Microbatches do not mix: a slot made by microbatch work is read by work of the same
//     microbatch, on either side of a channel; the update reads received slots only when they hold
//     the whole step (or there is one microbatch).
//  5. What was sent is final: no in-place write after a SEND of the slot. A persistent slot is
//     received at most once, and not used by a RUN afterwards.
//  6. One name across meshes: a received slot is read under the name (`input` node) that it was
//     made under (output of the executable; a persistent slot has its own name). A reported slot
//     that was received has the report's name.
//  7. Tiles of one value on one channel come from one slot, fill one slot and have growing offsets
//     at both ends.
//  8. Members of a collective arrive with the same executable, microbatch and node.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "ir/graph.h"
#include "ir/program.h"

namespace meshwright::ir {

// Layers of one graph; far above any model, low enough for tables per layer.
inline constexpr int kMaxLayers = 16384;

Status VerifyGraph(const Graph& graph);

// REQUIRES: VerifyGraph(loss) is OK. Errors: kInvalidArgument with node and fix: ops of callers
// (input), of the planner (collectives) or of the update (clip_multiplier, adamw, sgd); nodes of
// another phase; params that no node reads or that look like optimizer state; layers that are not
// numbered 0..n-1 or decrease along an edge; outputs besides "loss_sum" and "count"; an op without
// gradient between a param and "loss_sum"; a "count" that depends on a param.
Status VerifyLossGraph(const Graph& loss);

struct VerifyOptions {
  int64_t memory_budget_bytes = INT64_MAX;  // arena + persistent slots of one device
  // Each program stands for all devices of its mesh, whose others have none: collectives wait for
  // nobody, and tiles that several of a mesh would send come from the one that is there.
  bool one_per_mesh = false;
};

// Errors: kInvalidArgument "program step/3, instruction 17 (SEND s7 -> c0): ...".
Status VerifyPrograms(std::span<const Program> programs, const VerifyOptions& options = {});
Status VerifyPrograms(std::span<const Program* const> programs, const VerifyOptions& options = {});

}  // namespace meshwright::ir
