// From the logical step to what each stage runs: recomputation, stages, shardings, local
// pieces with collectives, fused.
//
// A head is computed in blocks of tokens, as many as are worth it on a cluster's devices. A block
// of T tokens takes 6 T FLOPs per weight of the head, and moves 12 bytes per weight: reads it twice
// in 16 bits, and reads and writes its f32 gradient. So T is such that the second takes at most a
// tenth of the first: T >= 20 FLOP/s / (bytes/s). For CPUs that is a few hundred, what their blocks
// have anyhow; GPUs want thousands.
//
// Thread rule: pure functions.
#pragma once

#include <functional>
#include <optional>

#include "base/result.h"
#include "ir/graph.h"
#include "ir/job.h"
#include "mesh/topology.h"
#include "planner/layout.h"
#include "planner/pieces.h"
#include "planner/stages.h"
#include "planner/strategy.h"

namespace meshwright::planner {

// The job with head_block_tokens for the first device's profile; nothing where the job says itself,
// or the devices are content with few.
std::optional<ir::JobRequest> WithHeadBlocks(const ir::JobRequest& job,
                                             const mesh::Topology& topology);

// The step cut into stages.
struct StagedStep {
  ir::Graph graph;  // logical; ids are its own
  StageAssignment stages;
};

// `step_graph`: as MakeStepGraph gives it. Errors: as AssignStages.
Result<StagedStep> StageStep(const ir::JobRequest& job, ir::Graph step_graph, const Layout& layout);

// The pieces of a step whose shardings are chosen, ZeRO (planner/zero.h) included.
// `before_compile`: what else is made of them as long as nothing is fused. Errors: as
// MakePartition, `before_compile` and compile::CompileExecutable.
Result<Partition> MakeStepPartition(const ir::JobRequest& job, const StagedStep& step,
                                    const Layout& layout, const Strategies& strategies,
                                    const std::function<Status(Partition&)>& before_compile = {});

// With a tensor axis the vocabulary is split and the loss is reduced over it; otherwise head and
// loss are one op, if the job is compiled.
Result<ir::Graph> FuseWholeHead(const ir::JobRequest& job, const Layout& layout, ir::Graph graph);

// Fuses every piece, if the job is compiled.
Status CompilePieces(const ir::JobRequest& job, Partition& partition);

}  // namespace meshwright::planner
