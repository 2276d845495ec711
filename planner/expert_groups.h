// The programs of a job as ranks that share experts compute them.
//
// Where no token is dropped all experts share the slots of a row (client/experts.h). Ranks that
// have some of the experts each want slots by rank, so that a rank gets those of its experts alone:
// as many groups of slots as there are ranks, each with room for all tokens that may come, or for
// what the attr slots_factor of expert_slots times the mean says; counts are known before tokens
// move, and a row that wants more is an error of the kernel.
//
// Between rows and experts tokens are moved once in each direction: behind a dispatch, and before a
// combine, stands a reshape to the same shape with the attribute kSplitAttr, whose value is split
// by experts or by rows (planner/choose_rows.cc), so that the backward has what it reads where
// it is.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "ir/job.h"
#include "planner/layout.h"

namespace meshwright::planner {

inline constexpr char kSplitAttr[] = "split";
inline constexpr int64_t kByExperts = 1;
inline constexpr int64_t kByRows = 2;

// REQUIRES layout.expert() > 1. Errors: kInvalidArgument: no experts, or as many as the degree does
// not divide.
Result<ir::JobRequest> WithExpertGroups(const ir::JobRequest& job, const Layout& layout);

}  // namespace meshwright::planner
