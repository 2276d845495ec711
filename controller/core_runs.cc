#include "controller/core_runs.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "base/check.h"
#include "controller/core_actors.h"
#include "controller/core_ahead.h"
#include "controller/core_halts.h"
#include "controller/core_last_save.h"
#include "controller/core_records.h"
#include "controller/core_recovery.h"
#include "controller/core_return.h"
#include "controller/core_snapshots.h"
#include "controller/core_standings.h"
#include "controller/core_view.h"
#include "controller/core_watch.h"
#include "controller/elastic.h"
#include "controller/kind_placement.h"
#include "controller/last_save.h"
#include "controller/mesh_order.h"
#include "controller/preemption.h"
#include "ir/parallel_pins.h"

namespace meshwright::controller {

using proto::ErrorKind;
using proto::MakeError;
using proto::RuntimeError;

namespace {

// Why a job that runs needs a look.
constexpr const char* kCheckpointFails = "CheckpointFails";

void FreeDevices(const std::vector<RankPlace>& ranks, Membership& members) {
  for (const RankPlace& rank : ranks) members.SetOwner(rank.worker, rank.local_device, JobId(0));
}

std::shared_ptr<const ir::JobRequest> RequestToPlan(const JobEntry& job, size_t devices) {
  if (!job.recovery || job.recovery->gives_way) return job.request;
  const Recovery& recovery = *job.recovery;
  auto fewer = ToPlanForFewer(*job.request, recovery.kind, recovery.plan.degrees,
                              static_cast<int64_t>(devices));
  return fewer ? std::make_shared<const ir::JobRequest>(*std::move(fewer)) : job.request;
}

// From now on its devices are the job's, and a plan for them is made.
void BeginRun(JobEntry& job, std::vector<mesh::Device> devices, CoreState& core, Context& context) {
  std::vector<RankPlace> reserved;
  for (const mesh::Device& device : devices) {
    core.members.SetOwner(device.worker, device.local_index, job.id());
    reserved.push_back(RankPlace{device.worker, device.local_index});
  }
  job.record.reason.clear();
  job.record.message.clear();
  job.run.emplace(++job.runs, std::move(reserved), NewestStart(*job.request, job.record));
  core.book.Move(job, JobEvent::kPlace, context);
  context.Do(StartPlan{job.id(), job.run->number(), RequestToPlan(job, devices.size()),
                       TopologyOf(std::move(devices), core.members)});
}

std::unique_ptr<Driver> DriverOf(const JobEntry& job) {
  const ir::StartPoint& start = job.run->start().point;
  if (IsLastRun(job)) return std::make_unique<LastSave>(start.step);
  return MakeDriver(*job.request, start, job.record.told_steps,
                    job.recovery ? job.recovery->held : std::nullopt,
                    job.recovery ? job.recovery->stands : std::nullopt);
}

std::string Counted(size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// Its generation is durable before anyone is told of it.
void BeginMesh(JobEntry& job, const PlannedJob& plan, CoreState& core, Context& context) {
  FreeDevices(job.run->TakeRanks(plan), core.members);
  KeepProgramsFor(plan, job, core);
  KeepLargerPlan(plan, job, core, context);
  const std::string start = job.recovery ? ", " + SetStart(job, context) : "";
  const MeshGeneration gen = core.meshes.NewGeneration();
  job.record.checkpoint_folder = CheckpointFolderOn(job, core.members);
  MeshLife& mesh = core.meshes.Add(MeshLife(
      MakeMeshOrder(gen, job, plan, core.members, core.options), core.options, context.now.ms));
  job.run->Begin(gen, DriverOf(job));
  if (!mesh.state().order.snapshot_slots.empty()) {
    for (const MeshMember& member : mesh.state().members) job.snapshots.Add(member.worker, gen);
    for (const std::string& keeper : mesh.state().order.keepers) job.snapshots.Add(keeper, gen);
  }
  job.record.layout = plan.layout;
  job.device_memory_bytes = plan.device_memory_bytes;
  job.device_budget_bytes = plan.device_budget_bytes;
  job.peak_flops_per_s = plan.peak_flops_per_s;
  if (job.recovery) job.recovery->placed_ms = context.now.ms;
  core.book.Move(job, JobEvent::kPlanned, context);
  const std::string text =
      fmt::format("planned {} on {} of {} (generation {}){}", plan.layout,
                  Counted(job.run->ranks().size(), "device"),
                  Counted(mesh.state().members.size(), "worker"), gen.value(), start);
  Persist persist{job.id(), true, CallId(0), {}};
  persist.batch.next_mesh_gen = core.meshes.next_gen();
  persist.batch.jobs.push_back(job.record);
  persist.batch.jobs.back().run = FormatRunRecord(RecordOf(mesh.state().order, job));
  persist.batch.events.push_back(EventRecord{context.now.unix_ms, job.record.id, text});
  context.Do(std::move(persist));
  context.Do(BeginsBy(plan, job));
  context.Do(LogLine{job.id(), text});
  for (const std::string& note : plan.notes) {
    context.Do(LogLine{job.id(), fmt::format("note: {}", note)});
  }
  Feed(gen, MeshBegin{}, core, context);
}

// ---- What a mesh says, carried to its job -------------------------------------------------------

// Whose mesh it is, while its run goes on.
JobEntry& JobThatRuns(MeshGeneration gen, CoreState& core) {
  JobEntry& job = core.book.At(core.meshes.At(gen).job());
  MW_CHECK(job.run && job.run->mesh() == gen)
      << "mesh " << gen << " works for job " << job.record.id << ", which does not run on it";
  return job;
}

// The steps that are in the last state that was saved; below 0: none was.
int64_t LastSaveOf(const std::vector<ResumedLaunch>& launches) {
  int64_t step = -1;
  for (const ResumedLaunch& each : launches) {
    if (each.launch.kind == LaunchKind::kSave) step = each.launch.first_step;
  }
  return step;
}

struct MeshCarrier {
  const MeshGeneration gen;
  const JobId job;
  CoreState& core;
  Context& context;

  void operator()(MeshSend& send) {
    core.tally.Count(job, proto::KindName(send.body));
    context.Do(
        Send{job, send.session, proto::DownMessage{core.options.term, std::move(send.body)}});
  }

  void operator()(const MeshActivated&) {
    JobEntry& entry = JobThatRuns(gen, core);
    if (entry.record.started_unix_ms == 0) entry.record.started_unix_ms = context.now.unix_ms;
    if (entry.recovery) entry.recovery->active_ms = context.now.ms;
    entry.active_ms = context.now.ms;
    entry.saved_ms = context.now.ms;
    core.book.Move(entry, JobEvent::kStarted, context);
    const std::string text = fmt::format("running: {}", entry.record.layout);
    PersistJob(entry, false, text, context);
    context.Do(LogLine{job, text});
    core.clients.OpenJob(entry, context);
    if (core.clients.HasFinished(job)) entry.run->Close();
    if (IsLastRun(entry)) BeginLastSave(entry, core, context);
  }

  // A step that was done while nobody heard of it is told now.
  void operator()(MeshTakenUp& up) {
    JobEntry& entry = JobThatRuns(gen, core);
    const Status resumed = entry.run->Resume(up.launches, up.from_first);
    if (!resumed.ok()) {
      const Status why = resumed.WithContext("the restarted controller cannot take the run up");
      Feed(gen, MeshFault{MakeError(ErrorKind::kControllerRestarted, why.WithBlame(Blame::kInfra))},
           core, context);
      return;
    }
    const bool is_on_record = !up.launches.empty() && entry.record.checkpoint_step >= 0 &&
                              LastSaveOf(up.launches) <= entry.record.checkpoint_step;
    if (is_on_record) entry.run->driver().SaveEnded(true);
    entry.saved_ms = entry.active_ms = context.now.ms;
    const std::string text =
        fmt::format("taken up by the restarted controller (term {})", core.options.term.value());
    PersistJob(entry, false, text, context);
    context.Do(LogLine{job, text});
    core.clients.OpenJob(entry, context);
    if (core.clients.HasFinished(job)) entry.run->Close();
  }

  // Of several launches the first one may have failed the mesh.
  void operator()(MeshLaunched& launched) {
    if (core.meshes.At(gen).state().phase != MeshPhase::kActive) return;
    WatchLaunched(gen, launched.result, core, context);
    JobEntry& entry = JobThatRuns(gen, core);
    const PlannedLaunch& launch = launched.result.launch;
    const bool fills_state =
        launch.kind == LaunchKind::kRestore || launch.program == ir::kInitProgram;
    entry.was_active = entry.was_active || !fills_state;
    TellRecorded(launched.result, core.meshes.At(gen).state(), entry, core, context);
    if (launch.snapshot) {
      NoteSnapshot(entry, launched.result, core.meshes.At(gen).state(), core, context);
    }
    if (std::optional<DriverNews> news = entry.run->OnLaunched(launched.result)) {
      const Status status = news->status;
      TellNews(entry, *std::move(news), context);
      NoteProgress(entry, context);
      if (!status.ok()) {
        Feed(gen, MeshFault{MakeError(ErrorKind::kDiverged, status)}, core, context);
        return;
      }
    }
    if (launched.result.ask) core.clients.Answer(job, std::move(launched.result), context);
  }

  // What came before it in the same step may have ended the run.
  void operator()(const MeshWantsWork&) {
    const MeshLife* const mesh = core.meshes.Find(gen);
    if (mesh == nullptr || mesh->state().phase != MeshPhase::kActive) return;
    GiveWork(JobThatRuns(gen, core), core, context);
  }

  void operator()(const MeshDataLost&) {
    const auto blobs = BlobsOf(core.book.At(job), core);
    context.Do(CheckBlobs{job, {blobs.begin(), blobs.end()}});
  }

  void operator()(const MeshAborts&) {}

  void operator()(const MeshWeights& weights) {
    switch (weights.step) {
      case WeightsStep::kOpen:
        return context.Do(OpenWeights{job, gen, JobThatRuns(gen, core).request});
      case WeightsStep::kFinish:
        return context.Do(FinishWeights{job, gen});
      case WeightsStep::kSaved:
        return context.Do(LogLine{job, "weights saved"});
      case WeightsStep::kDiscard:
        return context.Do(DiscardWeights{job, gen});
    }
  }

  // A checkpoint that is there is on record before anything is built on it.
  void operator()(const MeshSaved& saved) {
    JobEntry& entry = JobThatRuns(gen, core);
    entry.run->driver().SaveEnded(saved.status.ok());
    entry.saved_ms = context.now.ms;
    if (!saved.status.ok()) {
      const std::string text = fmt::format("the checkpoint of step {} was not written: {}",
                                           saved.step, saved.status.message());
      entry.record.reason = kCheckpointFails;
      entry.record.message = text;
      PersistJob(entry, false, text, context);
      context.Do(JobCounted{job, JobCount::kFailedCheckpoint});
      context.Do(JobChanged{job});
      return context.Do(LogLine{job, text});
    }
    if (entry.record.reason == kCheckpointFails) {
      entry.record.reason.clear();
      entry.record.message.clear();
    }
    entry.record.checkpoint_step = saved.step;
    context.Do(JobCounted{job, JobCount::kCheckpoint});
    const ir::FolderRef& folder = entry.record.checkpoint_folder;
    const std::string text =
        fmt::format("checkpoint of step {} in {}{}, held up {:.3f} s, written in {:.2f} s",
                    saved.step, folder.path, folder.at_controller() ? " of the controller" : "",
                    saved.seconds.copy, saved.seconds.write);
    PersistJob(entry, false, text, context);
    context.Do(LogLine{job, text});
    context.Do(JobChanged{job});
  }

  void operator()(MeshCommit& commit) { context.Do(CommitHere{job, std::move(commit.commit)}); }

  void operator()(const MeshDevicesFreed& freed) {
    for (const int device : freed.devices) core.members.SetOwner(freed.worker, device, JobId(0));
  }
};

}  // namespace

namespace {

// Its mesh is released.
void FinishRun(JobEntry& job, CoreState& core, Context& context) {
  if (job.run->halt() && job.run->halt()->behind_save) return FinishHalt(job, core, context);
  EndJob(job, RuntimeError{}, core, context);
}

}  // namespace

std::vector<DeafMember> Feed(MeshGeneration gen, const MeshInput& input, CoreState& core,
                             Context& context) {
  MeshLife* const mesh = core.meshes.Find(gen);
  if (mesh == nullptr) return {};
  const JobId job = mesh->job();
  MeshStep step = mesh->Step(input, context.now.ms);
  core.tally.CountStale(step.stale);
  MeshCarrier carrier{gen, job, core, context};
  for (MeshEffect& effect : step.effects) std::visit(carrier, effect);
  if (step.outcome != MeshOutcome::kGoesOn) {
    EndWatch(gen, JobThatRuns(gen, core), core, context);
  }
  if (step.outcome == MeshOutcome::kFinished) {
    FinishRun(JobThatRuns(gen, core), core, context);
  } else if (step.outcome == MeshOutcome::kFailed) {
    FailRun(JobThatRuns(gen, core), step.cause, core, context);
  }
  if (step.all_freed) core.meshes.Erase(gen);
  return std::move(step.deaf);
}

void GiveWork(JobEntry& job, CoreState& core, Context& context) {
  if (!job.run || !job.run->mesh()) return;
  const MeshGeneration gen = *job.run->mesh();
  const MeshState& mesh = core.meshes.At(gen).state();
  if (mesh.phase != MeshPhase::kActive || !mesh.AllHere()) return;
  const auto take = [&](const CallSteps& steps) { return core.clients.Take(job, steps, context); };
  while (mesh.HasRoom()) {
    std::optional<MeshWork> work = job.run->NextWork(take);
    if (!work) break;
    work->record = RecordedIn(work->launch, job);
    Feed(gen, MeshLaunch{*std::move(work), context.now.unix_ms}, core, context);
  }
  if (!mesh.launches.empty() || EndHalt(job, core, context) || !job.run->done()) return;
  Feed(gen, MeshClose{job.request->save_weights}, core, context);
}

void RequestSaves(CoreState& core, Context& context) {
  for (auto& [id, job] : core.book.all()) {
    if (!job.run || !job.run->mesh() || !job.request->checkpoint.enable) continue;
    const int64_t interval_ms = job.request->checkpoint.interval_s * 1000;
    if (interval_ms == 0 || context.now.ms - job.saved_ms < interval_ms) continue;
    job.saved_ms = context.now.ms;
    job.run->driver().RequestSave(SaveCause::kTime);
    GiveWork(job, core, context);
  }
}

void CloseRun(JobEntry& job, CoreState& core, Context& context) {
  core.clients.Finish(job.id());
  if (!job.run || !job.run->mesh()) return;  // it will be closed once it has begun
  job.run->Close();
  GiveWork(job, core, context);
}

void BeginRunAgain(JobEntry& job, const std::vector<RankPlace>& ranks, const PlannedJob& plan,
                   CoreState& core, Context& context) {
  for (const RankPlace& rank : ranks) {
    core.members.SetOwner(rank.worker, rank.local_device, job.id());
  }
  job.record.reason.clear();
  job.record.message.clear();
  job.run.emplace(++job.runs, ranks, NewestStart(*job.request, job.record));
  BeginMesh(job, plan, core, context);
}

// ---- Ends ---------------------------------------------------------------------------------------

void FailRun(JobEntry& job, const RuntimeError& cause, CoreState& core, Context& context) {
  MW_CHECK(job.run.has_value()) << "job " << job.record.id << " does not run";
  const bool pauses = job.record.wish == JobWish::kPause;
  if (job.record.wish == JobWish::kCancel) {
    TellNews(job, job.run->Abandon(), context);
    return EndJob(job, CancelCause(), core, context);
  }
  if (IsLastRun(job)) return EndUnsaved(job, cause.message, core, context);
  const RunFailure failure{job.run->mesh().has_value(), job.was_active, job.record.steps_done,
                           cause};
  const Judgement judgement = JudgeFailure(failure, *job.request, context.now.unix_ms, job.history);
  NoteHostFault(job.id(), cause, judgement.is_own, core, context);
  switch (judgement.after) {
    case AfterFailure::kEndJob: {
      RuntimeError last = cause;
      if (!judgement.why.empty()) last.message += fmt::format("; the job ends: {}", judgement.why);
      TellNews(job, job.run->Abandon(), context);
      if (EndBehindLastSave(job, last, core, context)) return;
      return EndJob(job, last, core, context);
    }
    case AfterFailure::kRecover:
      BeginRecovery(job, cause, core, context);
      if (pauses) Park(job, core, context);
      return;
    case AfterFailure::kPlanAgain:
      break;
  }
  if (!failure.was_begun) FreeDevices(job.run->ranks(), core.members);
  job.run.reset();
  core.queue.DropTry(job, context);
  core.queue.Add(job.id(), job.request->queue.priority);
  core.book.Move(job, JobEvent::kUnplace, context);
  context.Do(LogLine{job.id(), fmt::format("planning again: {}", cause.message)});
}

void EndJob(JobEntry& job, const RuntimeError& cause, CoreState& core, Context& context) {
  core.queue.Forget(job.id());
  if (job.run && !job.run->mesh()) FreeDevices(job.run->ranks(), core.members);
  Carry(core.actors.JobEnded(job.id()), core, context);
  DropSnapshots(job, core, context);
  core.book.End(job, cause, context);
  core.clients.CloseJob(job.id(), cause, context);
}

// ---- Events -------------------------------------------------------------------------------------

void PlaceJobs(CoreState& core, Context& context) {
  if (core.stopping) return;
  RecoverJobs(core, context);
  const auto next = [&] {
    const ClusterView cluster{core.members, core.meshes.EndingDevices(), KeptDevices(core)};
    return core.queue.Next(core.book, cluster, context);
  };
  while (auto departure = next()) {
    if (departure->failure.ok()) {
      BeginRun(departure->job, std::move(departure->devices), core, context);
    } else {
      EndJob(departure->job, departure->failure, core, context);
    }
  }
  PreemptForHead(core, context);
}

namespace {

// "parallel.expert is 2" as an error about the key that sets it.
Status InWordsOfJobFiles(const Status& why) {
  constexpr std::string_view kParallel = "parallel.";
  const std::string_view field = why.field();
  if (!field.starts_with(kParallel)) return why;
  for (const ir::Pin& pin : ir::Pins()) {
    if (field.substr(kParallel.size()) == pin.name) return why.WithFieldCalled(pin.key);
  }
  return why;
}

}  // namespace

void On(const PlanFinished& event, CoreState& core, Context& context) {
  JobEntry* const job = core.book.Find(event.job);
  const bool current =
      job != nullptr && job->run && !job->run->mesh() && job->run->number() == event.attempt;
  if (!current) return;  // cancelled, or placed anew meanwhile
  core.queue.EndTry(*job);
  if (!event.plan.has_value()) {
    const Status why = InWordsOfJobFiles(event.plan.error());
    const RuntimeError error = event.misfit
                                   ? MakeError(ErrorKind::kInfeasible, why.WithBlame(Blame::kUser))
                                   : MakeError(ErrorKind::kPlanFailed, why);
    if (job->recovery) {
      const size_t devices = job->run->ranks().size();
      FreeDevices(job->run->ranks(), core.members);
      job->run.reset();
      return StopReplanning(*job, devices, error, core, context);
    }
    return FailRun(*job, error, core, context);
  }
  const Status placed = CheckPlacement(*event.plan, job->run->ranks().size());
  if (!placed.ok()) {
    return FailRun(*job, MakeError(ErrorKind::kPlanFailed, placed), core, context);
  }
  BeginMesh(*job, *event.plan, core, context);
}

void On(const CommittedHere& event, CoreState& core, Context& context) {
  Feed(event.committed.mesh_gen, MeshCommitted{event.committed}, core, context);
}

void On(const WeightsFile& event, CoreState& core, Context& context) {
  Feed(event.mesh_gen, MeshWeightsFile{event.complete, event.status}, core, context);
}

}  // namespace meshwright::controller
