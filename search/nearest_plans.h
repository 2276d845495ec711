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

// REQUIRES: not empty.
size_t FastestOf(std::span<const ForecastPlan> plans);
// Seconds of `plan` over those of the fastest of `plans`.
double SlowdownOf(const ForecastPlan& plan, std::span<const ForecastPlan> plans);

// Whether `plan` is at most 2 % slower than the fastest of `plans` and has no more calls than
// `other`.
bool MayReplace(const ForecastPlan& plan, const ForecastPlan& other,
                std::span<const ForecastPlan> plans);

// The fastest, unless one that is at most 2 % slower has at most half as many calls: the fastest of
// these. REQUIRES: not empty.
size_t ChooseOfNearest(std::span<const ForecastPlan> plans);

}  // namespace meshwright::search
