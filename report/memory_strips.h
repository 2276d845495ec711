// What devices hold in each memory over a step, as strips of a plan's picture.
//
// One for the first device of each stage in each memory that it uses, below the most that a device
// has allocated there. Where a job uses farther memories kinds are told apart, so that one sees
// what goes where.
//
// Thread rule: pure function.
#pragma once

#include "mesh/topology.h"
#include "planner/plan.h"
#include "planner/simulate.h"
#include "report/plan_canvas.h"

namespace meshwright::report {

// From y on; returns the y below.
int DrawMemoryStrips(const planner::Plan& plan, const planner::Simulation& simulation,
                     const mesh::Topology& topology, int y, Canvas& canvas);

}  // namespace meshwright::report
