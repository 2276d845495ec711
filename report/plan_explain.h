// Why a stage or a tensor of a plan is as it is, for people and as JSON: `meshwright plan explain`.
//
// Thread rule: pure functions.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "mesh/topology.h"
#include "report/plan_job.h"
#include "report/plan_reasons.h"
#include "report/sharding_reasons.h"

namespace meshwright::report {

// `subject`: "stage 2", "layer 5", "layers 3-5", "memory", else what ExplainShardings
// takes. Errors: kNotFound naming what there is; those of planning.
Result<std::string> ExplainPlan(const PlannedJob& planned, const mesh::Topology& topology,
                                const std::string& subject, bool json, const Clock& clock);

// `step_s`: the forecast of the plan.
std::string FormatStage(const StageExplanation& stage, double step_s);
std::string FormatShardings(const ShardingExplanations& answer, bool by_search);

std::string StagesJson(const std::vector<StageExplanation>& stages, double step_s);
std::string ShardingsJson(const ShardingExplanations& answer, bool by_search);

}  // namespace meshwright::report
