// What a vocabulary that stages share gains.
//
// Thread rule: pure functions.
#pragma once

#include <string>

#include "base/result.h"
#include "mesh/topology.h"
#include "planner/plan.h"

namespace meshwright::search {

// "stages share the vocabulary: step 1.2 s and 3.1 GB on the fullest device, with schedule 1f1b
// 1.5 s and 5 GB", by forecasts. `plain`: the plan without, or why there is none.
std::string SharingNote(const planner::Plan& shared, const Result<planner::Plan>& plain,
                        const mesh::Topology& topology);

}  // namespace meshwright::search
