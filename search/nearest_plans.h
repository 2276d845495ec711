// Which of plans that are forecast to take about as long should run.
//
// A forecast is worth some percent, and what it does not know is to wait for one another: waking
// a thread that shares its core, a collective that begins when the last of its members comes. A
// plan with far fewer of these is preferred to one that is hardly faster.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "planner/plan.h"

namespace meshwright::search {

// Collectives and messages of one step, of the device that has most.
int64_t CallsOf(const planner::Plan& plan);

struct ForecastPlan {
  double step_s = 0;
  int64_t calls = 0;
};

// At most 5 % slower than any of `plans`: variants of it with fewer calls may be the ones to
// choose.
bool IsNearFastest(std::span<const ForecastPlan> plans, const ForecastPlan& plan);

// The fastest, unless one that is at most 2 % slower has at most half as many calls: the fastest of
// these. REQUIRES: not empty.
size_t ChooseOfNearest(std::span<const ForecastPlan> plans);

}  // namespace meshwright::search
