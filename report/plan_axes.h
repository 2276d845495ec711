// Why a plan uses each axis or does not (report/plan_reasons.h), for people and as JSON:
// `meshwright plan explain JOB`.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "mesh/topology.h"
#include "report/plan_job.h"
#include "report/plan_reasons.h"
#include "search/deciders.h"

namespace meshwright::report {

// `timeout_ms`: of each search for what another degree would be.
std::string ExplainPlanAxes(const PlannedJob& planned, const mesh::Topology& topology, bool json,
                            int64_t timeout_ms, const Clock& clock);

// A line per axis, and how often each solver and rule decided something of the plan.
std::string FormatAxes(const std::vector<AxisReason>& reasons, double step_s,
                       const search::DeciderCounts& deciders);
std::string AxesJson(const std::vector<AxisReason>& reasons, double step_s,
                     const search::DeciderCounts& deciders);

// Whether collectives run beside what computes, and why not, as a line; "" where there are none.
std::string OverlapLine(const planner::Plan& plan, const planner::Forecast& forecast);

// Why the degree is what it is, as a sentence.
std::string WhyOf(const AxisReason& reason);

}  // namespace meshwright::report
