// The programs of a job as ranks that share experts compute them.
//
// Where no token is dropped all experts share the slots of a row (client/experts.h). Ranks that
// have some of the experts each want slots by rank, so that a rank gets those of its experts alone:
// as many groups of slots as there are ranks, each with room for all tokens that may come.
//
// Thread rule: pure functions.
#pragma once

#include "base/result.h"
#include "ir/job.h"
#include "planner/layout.h"

namespace meshwright::planner {

// REQUIRES layout.expert() > 1. Errors: kInvalidArgument: no experts, or as many as the degree does
// not divide.
Result<ir::JobRequest> WithExpertGroups(const ir::JobRequest& job, const Layout& layout);

}  // namespace meshwright::planner
