// PlanDrawer: draws the plan of every job that is to run: plan.svg and plan.json in the job's
// folder, beside plan.txt.
//
// It has a thread of its own, so that nothing waits for a picture; a plan that cannot be drawn is
// said in the log. Thread rule: thread-safe.
#pragma once

#include "base/executor.h"
#include "controller/planning.h"

namespace meshwright::web {

inline constexpr const char* kPlanPicture = "plan.svg";
inline constexpr const char* kPlanFigures = "plan.json";

class PlanDrawer {
 public:
  // Draws later.
  void Draw(controller::MadePlan made);
  // What waits is drawn first. Idempotent.
  void Stop() { thread_.Stop(); }

 private:
  Executor thread_{"mw-draw-plans"};
};

// Writes the files. Errors: those of the forecast, and of writing.
Status DrawPlan(const controller::MadePlan& made);

}  // namespace meshwright::web
