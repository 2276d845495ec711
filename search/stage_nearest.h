// Why no stages fit: how much memory is missing, and where.
//
// Thread rule: pure function of the problem, but for `stop`.
#pragma once

#include <functional>

#include "base/result.h"
#include "search/stage_inventory.h"
#include "search/stage_problem.h"

namespace meshwright::search {

// REQUIRES: no stages fit the problem. kResourceExhausted that names the stage of the plan whose
// worst stage is over the memory of its devices by the fewest bytes, or says that nothing covers
// the layers whatever memory there is. Takes the logarithm of a device's bytes in searches; when
// `stop` ends it (it may not end the first of them), the plan that was nearest so far is named.
Status NearestStages(const StageProblem& problem, const StageInventory::Limits& limits,
                     const std::function<bool()>& stop);

}  // namespace meshwright::search
