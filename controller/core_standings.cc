#include "controller/core_standings.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "controller/core_halts.h"
#include "controller/core_runs.h"
#include "controller/core_snapshots.h"
#include "controller/recovery.h"

namespace meshwright::controller {

using proto::ErrorKind;
using proto::MakeError;
using proto::WorkerOrder;

namespace {

// A worker that gives its work away.
struct Drain {
  std::string worker;
  int64_t until_ms = 0;
  bool late = false;    // what is left is ended
  bool leaves = false;  // its process is on its way out
  std::string why;
};

std::optional<Drain> DrainOf(const Worker& worker, const Membership& members, Now now) {
  if (worker.session.value() == 0) return std::nullopt;
  const std::string& name = worker.info.name;
  if (worker.leave_by_ms >= 0) {
    return Drain{name, worker.leave_by_ms, now.ms >= worker.leave_by_ms, true,
                 fmt::format("worker '{}' is told to stop", name)};
  }
  const StandingRecord* const standing = members.standings().Of(name);
  if (standing == nullptr || standing->standing != Standing::kDraining) return std::nullopt;
  const int64_t left_ms = std::max<int64_t>(0, standing->until_unix_ms - now.unix_ms);
  return Drain{name, now.ms + left_ms, left_ms == 0, false, standing->why};
}

// Whoever waits for it is told once it is on disk.
void PersistStanding(const StandingRecord& record, CallId call, Context& context) {
  Persist persist{JobId(0), call.value() != 0, call, {}};
  persist.batch.standings.push_back(record);
  persist.batch.events.push_back(
      EventRecord{context.now.unix_ms, 0,
                  record.standing == Standing::kOpen
                      ? fmt::format("worker '{}' is open: {}", record.worker, record.why)
                      : fmt::format("worker '{}' is {}: {}", record.worker, Name(record.standing),
                                    record.why)});
  context.Do(std::move(persist));
}

bool IsIdle(const Worker& worker) {
  return std::all_of(worker.device_job.begin(), worker.device_job.end(),
                     [](JobId job) { return job.value() == 0; });
}

// The job is to leave the worker.
void MoveAway(JobEntry& job, const Drain& drain, CoreState& core, Context& context) {
  const auto cause = MakeError(ErrorKind::kWorkerStopped,
                               Aborted(drain.why).WithBlame(Blame::kInfra), drain.worker);
  if (!job.run->mesh()) return FailRun(job, cause, core, context);
  const MeshPhase phase = core.meshes.At(*job.run->mesh()).state().phase;
  if (phase == MeshPhase::kAborting || phase == MeshPhase::kReleasing) return;
  const bool can_halt = CanHalt(*job.request);
  // A process that goes is not kept for what is lost anyway.
  if (drain.late || (drain.leaves && !can_halt)) {
    (void)Feed(*job.run->mesh(), MeshFault{cause}, core, context);
  } else if (can_halt && phase != MeshPhase::kSaving && phase != MeshPhase::kResuming) {
    BeginHalt(job, Halt{HaltFor::kDrain, context.now.ms, drain.until_ms, drain.why}, core, context);
  }
}

void Conclude(const Drain& drain, CoreState& core, Context& context) {
  Worker& worker = core.members.At(drain.worker);
  if (drain.leaves) {
    worker.leave_by_ms = -1;
    core.tally.Count(JobId(0), "Drained");
    // Its memory goes with it: nobody is sent there any more.
    ForgetSnapshots(drain.worker, core, context);
    return context.Do(
        Send{JobId(0), worker.session, proto::DownMessage{core.options.term, proto::Drained{}}});
  }
  const StandingRecord record{drain.worker, Standing::kDrained, context.now.unix_ms, 0, drain.why};
  if (auto drained = core.members.standings().Apply(record, StandingEvent::kEmptied)) {
    PersistStanding(*drained, CallId(0), context);
  }
}

std::vector<Drain> Drains(const CoreState& core, Now now) {
  std::vector<Drain> drains;
  for (const auto& [name, worker] : core.members.all()) {
    if (auto drain = DrainOf(worker, core.members, now)) drains.push_back(*std::move(drain));
  }
  return drains;
}

// Those that drain and are not there have nothing to give away.
void ConcludeAbsent(CoreState& core, Context& context) {
  std::vector<StandingRecord> gone;
  for (const auto& [name, record] : core.members.standings().all()) {
    const Worker* const worker = core.members.Named(name);
    const bool there = worker != nullptr && worker->session.value() != 0;
    // Or they come back with a run that an earlier controller began.
    const std::string& of_record = record.worker;
    const bool is_awaited = std::any_of(
        core.book.all().begin(), core.book.all().end(),
        [&](const auto& each) { return each.second.run && each.second.run->Uses(of_record); });
    if (record.standing == Standing::kDraining && !there && !is_awaited) gone.push_back(record);
  }
  for (StandingRecord& record : gone) {
    record.since_unix_ms = context.now.unix_ms;
    record.until_unix_ms = 0;
    if (auto drained = core.members.standings().Apply(record, StandingEvent::kEmptied)) {
      PersistStanding(*drained, CallId(0), context);
    }
  }
}

struct OrderMeaning {
  StandingEvent event;
  const char* why;
};
std::optional<OrderMeaning> MeaningOf(WorkerOrder order) {
  switch (order) {
    case WorkerOrder::kCordon:
      return OrderMeaning{StandingEvent::kCordon, "cordoned by an operator"};
    case WorkerOrder::kUncordon:
      return OrderMeaning{StandingEvent::kUncordon, "uncordoned by an operator"};
    case WorkerOrder::kDrain:
      return OrderMeaning{StandingEvent::kDrain, "drained by an operator"};
    case WorkerOrder::kEvict:
      return OrderMeaning{StandingEvent::kDrain, "evicted by an operator"};
    case WorkerOrder::kUnspecified:
      break;
  }
  return std::nullopt;
}

// How long the work may take to leave.
int64_t PatienceMs(const OrderWorker& event, const CoreOptions& options) {
  constexpr int64_t kMostMs = 86'400'000;
  if (event.order == WorkerOrder::kEvict) return 0;
  return event.deadline_ms <= 0 ? options.default_drain_ms : std::min(event.deadline_ms, kMostMs);
}

}  // namespace

void On(const OrderWorker& event, CoreState& core, Context& context) {
  const auto reply = [&](Status status) {
    context.Do(Reply{event.call, JobId(0), std::move(status)});
  };
  const auto meaning = MeaningOf(event.order);
  if (!meaning) return reply(InvalidArgument("the order is none that this controller knows"));
  Standings& standings = core.members.standings();
  if (core.members.Named(event.worker) == nullptr && standings.IsOpen(event.worker)) {
    return reply(NotFound(fmt::format(
        "there is no worker '{}'; 'meshwright status' lists those that there are", event.worker)));
  }
  StandingRecord record{event.worker, Standing::kOpen, context.now.unix_ms, 0, meaning->why};
  if (meaning->event == StandingEvent::kDrain) {
    record.until_unix_ms = context.now.unix_ms + PatienceMs(event, core.options);
  }
  if (meaning->event == StandingEvent::kUncordon) core.host_faults.Forget(event.worker);
  if (auto changed = standings.Apply(std::move(record), meaning->event)) {
    PersistStanding(*changed, event.call, context);
  }
  reply(OkStatus());
}

void DrainWorkers(CoreState& core, Context& context) {
  if (core.stopping) return;
  ConcludeAbsent(core, context);
  for (const Drain& drain : Drains(core, context.now)) {
    for (auto& [id, job] : core.book.all()) {
      if (job.run && job.run->Uses(drain.worker)) MoveAway(job, drain, core, context);
    }
    if (!IsIdle(core.members.At(drain.worker))) continue;
    const bool is_needed = !drain.late && HoldsForNextRun(drain.worker, core, context.now);
    if (!is_needed) Conclude(drain, core, context);
  }
}

void NoteHostFault(JobId job, const proto::RuntimeError& cause, bool is_own, CoreState& core,
                   Context& context) {
  if (is_own) return core.host_faults.TakeBack(job);
  const int64_t most = core.options.quarantine_failures;
  if (most == 0 || !HostIsToBlame(cause)) return;
  const int64_t faults =
      core.host_faults.Note(cause.worker, job, context.now.ms, core.options.quarantine_window_ms);
  if (faults < most) return;
  const std::string why = fmt::format("its machine failed {} times within {} min, last: {}", faults,
                                      core.options.quarantine_window_ms / 60'000, cause.message);
  StandingRecord record{cause.worker, Standing::kQuarantined, context.now.unix_ms, 0, why};
  if (auto closed = core.members.standings().Apply(std::move(record), StandingEvent::kBlamed)) {
    PersistStanding(*closed, CallId(0), context);
    context.Do(LogLine{job, fmt::format("worker '{}' is quarantined: {}", cause.worker, why)});
  }
}

}  // namespace meshwright::controller
