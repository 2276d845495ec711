#include "controller/core_return.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "controller/core_halts.h"
#include "controller/elastic.h"

namespace meshwright::controller {
namespace {

// The while is not doubled more often: an hour, of half a minute.
constexpr int kMostDoublings = 7;

int64_t WhileOf(const JobEntry& job, const CoreState& core) {
  return core.options.return_after_ms << std::min(job.returns, kMostDoublings);
}

// In the queue, or between two runs.
bool SomebodyWaits(const CoreState& core, JobId but) {
  const auto& queue = core.queue.jobs();
  if (std::any_of(queue.begin(), queue.end(), [&](JobId id) { return id != but; })) return true;
  const auto& recovering = core.book.recovering();
  return std::any_of(recovering.begin(), recovering.end(),
                     [&](JobId id) { return id != but && !core.book.Find(id)->run; });
}

bool MayReturn(const JobEntry& job, const CoreState& core, Now now) {
  const bool works = job.record.state == JobState::kRunning && job.run && job.run->mesh() &&
                     !job.run->halt() && !job.recovery && CanHalt(*job.request);
  return works && now.ms - job.active_ms >= WhileOf(job, core) &&
         core.meshes.At(*job.run->mesh()).state().phase == MeshPhase::kActive;
}

}  // namespace

void KeepLargerPlan(const PlannedJob& plan, JobEntry& job, CoreState& core, Context& context) {
  if (!job.recovery) {
    job.larger.reset();
    job.returns = 0;
    return;
  }
  const Recovery& recovery = *job.recovery;
  if (!job.larger && plan.devices.size() < recovery.plan.devices.size()) {
    job.larger = SeatedPlan{recovery.plan, recovery.ranks};
    // That its last return lasted is forgotten only by one that lasts.
    const bool lasted = context.now.ms - job.active_ms >= 2 * WhileOf(job, core);
    if (lasted) job.returns = 0;
  } else if (job.larger && plan.devices.size() >= job.larger->plan.devices.size()) {
    job.larger.reset();
    ++job.returns;
  }
}

namespace {

// own: devices that the job still has count as free.
std::optional<std::vector<RankPlace>> SeatsOfLarger(const JobEntry& job, JobId own,
                                                    const CoreState& core) {
  if (!job.larger || SomebodyWaits(core, job.id())) return std::nullopt;
  return FindSeats(job.larger->plan, job.larger->ranks, job.recovery->avoid,
                   core.members.FreeDevices(job.recovery->kind, own));
}

}  // namespace

std::optional<SeatedPlan> FindLargerPlan(const JobEntry& job, const CoreState& core) {
  auto seats = SeatsOfLarger(job, JobId(0), core);
  if (!seats) return std::nullopt;
  return SeatedPlan{job.larger->plan, *std::move(seats)};
}

bool LargerPlanComes(const JobEntry& job, const CoreState& core) {
  return !SeatsOfLarger(job, JobId(0), core) && SeatsOfLarger(job, job.id(), core);
}

void ReturnToPlans(CoreState& core, Context& context) {
  if (core.stopping) return;
  for (auto& [id, job] : core.book.all()) {
    if (!job.larger || SomebodyWaits(core, id) || !MayReturn(job, core, context.now)) continue;
    const std::string& kind = core.meshes.At(*job.run->mesh()).state().order.kind;
    if (!FindSeats(job.larger->plan, job.larger->ranks, "", core.members.FreeDevices(kind, id))) {
      continue;
    }
    const std::string why = fmt::format("there are devices for {} again", job.larger->plan.layout);
    const int64_t now_ms = context.now.ms;
    return BeginHalt(job, Halt{HaltFor::kReturn, now_ms, now_ms + core.options.pause_save_ms, why},
                     core, context);
  }
}

}  // namespace meshwright::controller
