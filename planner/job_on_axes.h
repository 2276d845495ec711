// The programs of a job as the devices of a layout compute them: tokens in the order in which they
// lie, experts in groups of ranks, heads as devices share them (planner/context_attention.h).
//
// Tokens. Causal attention makes later tokens more work than earlier ones. So that blocks of a row
// are equal work, tokens lie in zigzag order (ir/sequence_order.h) from where a model looks them up
// on: ids and labels are reordered (they are few bytes), what knows positions is told the order,
// and all other ops compute on tokens wherever they lie. What leaves a program is in the order of
// positions. Attention of packed q, k, v becomes that of three tensors, whose tokens split apart.
//
// Experts. Where no token is dropped all experts share the slots of a row (client/experts.h). Ranks
// that have some of the experts each want slots by rank, so that a rank gets those of its experts
// alone: as many groups of slots as there are ranks, each with room for all tokens that may come,
// or for what the attr slots_factor of expert_slots times the mean says; counts are known before
// tokens move, and a row that wants more is an error of the kernel.
//
// Between rows and experts tokens are moved once in each direction: behind a dispatch, and before a
// combine, stands a reshape to the same shape with the attribute kSplitAttr, whose value is split
// by experts or by rows (planner/choose_rows.cc), so that the backward has what it reads where it
// is.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/job.h"
#include "planner/layout.h"

namespace meshwright::planner {

inline constexpr char kSplitAttr[] = "split";
inline constexpr int64_t kByExperts = 1;
inline constexpr int64_t kByRows = 2;

// A job on the axes of a layout.
struct JobOnAxes {
  ir::JobRequest job;
  Layout layout;  // with the way in which attention meets the context axis
  std::vector<std::string> notes;
};

// Of a layout without expert and context degrees the job as it is. Errors: kInvalidArgument: the
// model has no experts, or a degree divides neither experts, tokens nor heads.
Result<JobOnAxes> PlaceOnAxes(const ir::JobRequest& job, const Layout& layout);

}  // namespace meshwright::planner
