// From the logical step to what each stage runs: recomputation, stages, shardings, local
// pieces with collectives, fused.
//
// Thread rule: pure functions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/graph.h"
#include "ir/job.h"
#include "planner/layout.h"
#include "planner/pieces.h"
#include "planner/stages.h"
#include "planner/strategy.h"

namespace meshwright::planner {

// A job as the devices of a layout compute it: experts in groups of ranks, tokens in the order in
// which they lie, heads as devices share them.
struct JobOnAxes {
  ir::JobRequest job;
  Layout layout;  // with the way in which attention meets the context axis
  std::vector<std::string> notes;
};

// Of a layout without expert and context degrees the job as it is. Errors: kInvalidArgument: the
// model has no experts, or a degree divides neither experts, tokens nor heads.
Result<JobOnAxes> PlaceOnAxes(const ir::JobRequest& job, const Layout& layout);

// The step cut into stages.
struct StagedStep {
  ir::Graph graph;  // logical; ids are its own
  StageAssignment stages;
};

// `step_graph`: as MakeStepGraph gives it. Errors: as AssignStages.
Result<StagedStep> StageStep(const ir::JobRequest& job, ir::Graph step_graph, const Layout& layout);

// The pieces of a step whose shardings are chosen, ZeRO (planner/zero.h) included. Errors: as
// MakePartition and compile::CompileExecutable.
Result<Partition> MakeStepPartition(const ir::JobRequest& job, const StagedStep& step,
                                    const Layout& layout, const Strategies& strategies);

// With a tensor axis the vocabulary is split and the loss is reduced over it; otherwise head and
// loss are one op, if the job is compiled.
Result<ir::Graph> FuseWholeHead(const ir::JobRequest& job, const Layout& layout, ir::Graph graph);

// Fuses every piece, if the job is compiled.
Status CompilePieces(const ir::JobRequest& job, Partition& partition);

}  // namespace meshwright::planner
