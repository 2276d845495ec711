#include "controller/ahead_planner.h"

#include <utility>

#include "base/give_way.h"
#include "base/guard.h"

namespace meshwright::controller {

void AheadPlanner::Ask(MakePlanAhead ask, std::string job_dir,
                       std::function<void(PlannedAhead)> done) {
  (void)thread_.Post([this, ask = std::move(ask), dir = std::move(job_dir),
                      done = std::move(done)] {
    if (stopping_) return;
    GiveWay();
    bool misfit = false;
    Result<PlannedJob> plan = Guarded("the planner", [&] {
      return PlanJob(make_plan_, *ask.request, ask.topology, blobs_,
                     {dir, /*ahead=*/true, listener_, ask.job}, misfit);
    });
    done(PlannedAhead{ask.job, ask.epoch, ask.loss, ask.topology.devices.size(), std::move(plan)});
  });
}

void AheadPlanner::Stop() {
  stopping_ = true;
  thread_.Stop();
}

}  // namespace meshwright::controller
