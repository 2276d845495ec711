// What a plan says of its stages and params. Room-internal to planner/plan.
//
// Thread rule: pure functions on the caller's plan.
#pragma once

#include "planner/layout.h"
#include "planner/plan.h"
#include "planner/stages.h"
#include "planner/step_pieces.h"
#include "planner/strategy.h"

namespace meshwright::planner {

// Those of the model: layers behind them are of a shared vocabulary.
int ModelLayers(const StageAssignment& stages, const Layout& layout);

// Fills plan.stages and plan.params for plan.layout; blocks of stages are one param.
void DescribeStages(const StagedStep& staged, const Strategies& strategies, Plan& plan);

}  // namespace meshwright::planner
