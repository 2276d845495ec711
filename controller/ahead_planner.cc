#include "controller/ahead_planner.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "base/guard.h"

namespace meshwright::controller {
namespace {

// This thread, of all of the process.
void BeNice() {
  constexpr int kNice = 10;
  const auto thread = static_cast<id_t>(::syscall(SYS_gettid));
  (void)::setpriority(PRIO_PROCESS, thread, kNice);
}

}  // namespace

void AheadPlanner::Ask(MakePlanAhead ask, std::string job_dir,
                       std::function<void(PlannedAhead)> done) {
  (void)thread_.Post([this, ask = std::move(ask), dir = std::move(job_dir),
                      done = std::move(done)] {
    if (stopping_) return;
    BeNice();
    bool misfit = false;
    Result<PlannedJob> plan = Guarded("the planner", [&] {
      return PlanJob(make_plan_, *ask.request, ask.topology, blobs_, {dir, /*ahead=*/true}, misfit);
    });
    done(PlannedAhead{ask.job, ask.epoch, ask.loss, ask.topology.devices.size(), std::move(plan)});
  });
}

void AheadPlanner::Stop() {
  stopping_ = true;
  thread_.Stop();
}

}  // namespace meshwright::controller
