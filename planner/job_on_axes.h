// The programs of a job as the devices of a layout compute them: tokens in the order in which they
// lie, experts in groups of ranks, heads as devices share them (planner/context_attention.h).
//
// Tokens. Causal attention makes later tokens more work than earlier ones. So that blocks of a row
// are equal work, tokens lie in zigzag order (ir/sequence_order.h) from where a model looks them up
// on: ids and labels are reordered (they are few bytes), what knows positions is told the order,
// and all other ops compute on tokens wherever they lie. What leaves a program is in the order of
// positions. Attention of packed q, k, v becomes that of three tensors, whose tokens split apart.
//
// Experts. Ranks that have some of the experts each want slots by rank, and tokens that are moved
// once in each direction (planner/expert_groups.h), in one step or two, at once or in chunks
// (planner/expert_ways.h).
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "ir/job.h"
#include "planner/expert_ways.h"
#include "planner/layout.h"

namespace meshwright::planner {

// A job on the axes of a layout.
struct JobOnAxes {
  ir::JobRequest job;
  Layout layout;  // with the way in which attention meets the context axis
  std::vector<std::string> notes;
};

// Of a layout without expert and context degrees the job as it is. Errors: kInvalidArgument: the
// model has no experts, or a degree divides neither experts, tokens nor heads.
Result<JobOnAxes> PlaceOnAxes(const ir::JobRequest& job, const Layout& layout,
                              const ProgramDevices& devices);

}  // namespace meshwright::planner
