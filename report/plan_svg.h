// A plan as one picture: who computes what and when in a simulated step, what its memory holds over
// time, and how the largest weights are split. A run has the number of its microbatch, and the
// shade of the part of its stage that it computes.
//
// One self-contained SVG document, for a browser or a page. A row per device, or per stage where
// devices are many: those of a stage do the same at the same time.
//
// Thread rule: pure functions.
#pragma once

#include <string>

#include "mesh/topology.h"
#include "planner/forecast.h"
#include "planner/plan.h"

namespace meshwright::report {

// REQUIRES: `forecast` is of `plan` on `topology`.
std::string PlanSvg(const planner::Plan& plan, const planner::Forecast& forecast,
                    const mesh::Topology& topology);

// The same of one step in time alone, as it was: a simulation that is made of records
// (report/step_spans.h). title: a line above it.
std::string StepSvg(const planner::Plan& plan, planner::Simulation simulation,
                    const mesh::Topology& topology, const std::string& title);

}  // namespace meshwright::report
