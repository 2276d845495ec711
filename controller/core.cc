#include "controller/core.h"

#include <fmt/format.h>

#include <utility>

#include "base/constant_time.h"
#include "controller/core_actors.h"
#include "controller/core_ahead.h"
#include "controller/core_checks.h"
#include "controller/core_clients.h"
#include "controller/core_halts.h"
#include "controller/core_jobs.h"
#include "controller/core_records.h"
#include "controller/core_return.h"
#include "controller/core_runs.h"
#include "controller/core_snapshots.h"
#include "controller/core_standings.h"
#include "controller/core_view.h"
#include "controller/core_watch.h"
#include "controller/core_workers.h"
#include "controller/mesh_order.h"
#include "controller/no_such_job.h"

namespace meshwright::controller {

namespace {

// As after every event, the queue is looked at.
void On(const PlaceQueue&, CoreState&, Context&) {}

void On(const Tick&, CoreState& core, Context& context) {
  CheckLiveness(core, context);
  for (const MeshGeneration gen : core.meshes.Generations()) {
    LoseDeaf(Feed(gen, MeshTick{}, core, context), core, context);
  }
  CheckStalls(core, context);
  CheckClients(core, context);
  Carry(core.actors.Tick(ReadyActorWorkers(core.members), context.now.ms), core, context);
  core.book.WriteEndsAgain(context);
  RequestSaves(core, context);
  CheckHalts(core, context);
  EndLongWaits(core, context);
  KeepSnapshots(core, context);
  ReturnToPlans(core, context);
  PlanAhead(core, context);
  core.last_tick_ms = context.now.ms;
}

// What its workers hold the next controller takes up; what they do not, recovers there.
bool GoesOnLater(const JobEntry& job) {
  const ir::FaultToleranceSpec& spec = job.request->fault_tolerance;
  return job.request->driver.kind == ir::DriverKind::kTrain && spec.enable &&
         spec.orphan_grace_s > 0;
}

void On(const Shutdown&, CoreState& core, Context& context) {
  core.stopping = true;
  const Status status =
      Aborted("the controller was stopped; start it again and submit the job again")
          .WithBlame(Blame::kUser);
  for (auto& [id, job] : core.book.all()) {
    if (!job.run || !job.run->mesh() || GoesOnLater(job)) continue;
    const MeshGeneration gen = *job.run->mesh();
    Feed(gen, MeshFault{proto::MakeError(proto::ErrorKind::kControllerStopped, status)}, core,
         context);
    Feed(gen, MeshEndElection{}, core, context);
  }
  Carry(core.actors.Shutdown(), core, context);
  // Who ends on purpose has not been killed by what it planned.
  for (auto& [id, job] : core.book.all()) core.queue.DropTry(job, context);
  for (const auto& [name, worker] : core.members.all()) {
    if (worker.session.value() == 0) continue;
    context.Do(CloseSession{worker.session, Unavailable("the controller stopped")});
  }
}

}  // namespace

Core::Core(CoreOptions options, uint64_t next_mesh_gen, std::vector<RestoredJob> jobs,
           std::vector<StandingRecord> standings)
    : state_(options, next_mesh_gen, ActorOptionsOf(options)), restored_(std::move(jobs)) {
  state_.members.standings() = Standings(std::move(standings));
}

Effects Core::Start(Now now) {
  Context context{state_.options, now};
  state_.members.Begin(now.ms);
  for (RestoredJob& restored : std::exchange(restored_, {})) {
    Restore(std::move(restored), state_, context);
  }
  PlaceJobs(state_, context);
  return std::move(context.effects);
}

Effects Core::Step(const Event& event, Now now) {
  Context context{state_.options, now};
  std::visit([&](const auto& body) { On(body, state_, context); }, event);
  DrainWorkers(state_, context);
  PlaceJobs(state_, context);
  return std::move(context.effects);
}

Result<proto::JobInfo> Core::Job(JobId id) const {
  const JobEntry* const job = state_.book.Find(id);
  if (job == nullptr) return Fail(NoSuchJob(id));
  return InfoOf(*job, state_.options);
}

Result<JobStory> Core::Story(JobId id) const {
  const JobEntry* const job = state_.book.Find(id);
  if (job == nullptr) return Fail(NoSuchJob(id));
  return StoryOf(*job);
}

Result<HangReport> Core::Hang(JobId id, Now now) const {
  const JobEntry* const job = state_.book.Find(id);
  if (job == nullptr) return Fail(NotFound(fmt::format("there is no job {}", id.value())));
  return HangOf(*job, state_, now);
}

std::map<std::string, std::vector<DeviceRun>> Core::DeviceRuns() const {
  return DeviceRunsOf(state_.meshes);
}

std::map<std::string, std::vector<int64_t>> Core::DeviceJobs() const {
  return DeviceJobsOf(state_.members);
}

std::vector<proto::JobInfo> Core::Jobs() const {
  std::vector<proto::JobInfo> infos;
  const auto& jobs = state_.book.all();
  for (auto it = jobs.rbegin(); it != jobs.rend(); ++it) {
    infos.push_back(InfoOf(it->second, state_.options));
  }
  return infos;
}

Result<MeshFiles> Core::FilesOf(MeshGeneration gen, const std::string& key) const {
  const MeshLife* const mesh = state_.meshes.Find(gen);
  const bool may = mesh != nullptr && !mesh->state().IsEnding() &&
                   ConstantTimeEqual(key, FilesKeyOf(gen, state_.options));
  if (!may) {
    return Fail(PermissionDenied(fmt::format(
        "mesh generation {} does not run here, or was asked for with a wrong key", gen.value())));
  }
  const CheckpointOrder& order = mesh->state().order.checkpoints;
  return MeshFiles{gen, order.folder, order.start.checkpoint};
}

std::vector<proto::WorkerInfo> Core::Workers(Now now) const { return InfoOf(state_.members, now); }

std::vector<proto::WorkerInfo> Core::WorkerTiles() const { return TilesOf(state_.members); }

std::map<std::string, int64_t> Core::JobCounts() const { return CountStates(state_.book); }

std::map<std::string, int64_t> Core::WorkerCounts() const { return CountStates(state_.members); }

std::set<std::string> Core::BlobsInUse() const { return controller::BlobsInUse(state_); }

Status Core::CheckInvariants() const { return controller::CheckInvariants(state_); }

}  // namespace meshwright::controller
