#include "controller/core_snapshots.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "controller/core_runs.h"

namespace meshwright::controller {
namespace {

void SendToWorker(const std::string& worker, const JobEntry& job, proto::DownBody body,
                  CoreState& core, Context& context) {
  const Worker* const named = core.members.Named(worker);
  if (named == nullptr || named->session.value() == 0) return;
  core.tally.Count(job.id(), proto::KindName(body));
  context.Do(
      Send{job.id(), named->session, proto::DownMessage{core.options.term, std::move(body)}});
}

// A run may start where all that is before it has been told, or is held to be told.
bool MayStartAt(const SnapshotId& id, const ir::StartPoint& on_disk, const JobEntry& job) {
  const Recovery& recovery = *job.recovery;
  const bool told =
      id.step <= job.record.told_steps || (recovery.held && recovery.held->step + 1 == id.step);
  return told && id.step >= on_disk.step && !recovery.unreadable.contains(id);
}

// The tensors of the state, as the plan of the run before has them.
std::set<std::string> TensorsOf(const PlannedJob& plan) {
  std::set<std::string> tensors;
  for (const checkpoint::StateBox& box : plan.boxes) tensors.insert(box.tensor);
  return tensors;
}

}  // namespace

namespace {

// It is whole wherever it is to be.
void EndSnapshot(JobEntry& job, const JobSnapshots::Copying& ended, CoreState& core,
                 Context& context) {
  const MeshState& mesh = core.meshes.At(*job.run->mesh()).state();
  job.run->driver().SnapshotEnded(ended.taken, ended.step_seconds);
  std::set<std::string> members = mesh.order.keepers;
  for (const MeshMember& member : mesh.members) members.insert(member.worker);
  for (const std::string& worker : job.snapshots.NoteWhole(mesh.order.gen, members)) {
    SendToWorker(worker, job, proto::DropSnapshots{job.id(), mesh.order.gen}, core, context);
  }
}

void TellSnapshots(const std::string& text, JobEntry& job, Context& context) {
  PersistJob(job, false, text, context);
  context.Do(LogLine{job.id(), text});
}

// What each worker is to copy of whom.
std::map<std::string, proto::CopySnapshot> CopiesOf(const MeshOrder& order, int64_t step,
                                                    const Membership& members) {
  std::map<std::string, std::map<std::string, proto::SnapshotPart>> parts;
  for (const checkpoint::BoxCopy& copy : order.copies) {
    proto::SnapshotPart& part = parts[copy.to][copy.from];
    part.boxes.push_back(copy.key);
  }
  std::map<std::string, proto::CopySnapshot> copies;
  for (auto& [to, from] : parts) {
    proto::CopySnapshot& message = copies[to];
    message.mesh_gen = order.gen;
    message.step = step;
    if (order.keepers.contains(to)) {
      const Worker* const keeper = members.Named(to);
      message.job = order.job;
      message.cluster_id = order.load.cluster_id;
      message.process_id = keeper == nullptr ? 0 : keeper->info.incarnation.value();
      message.secret = order.load.secret;
    }
    for (auto& [worker, part] : from) {
      part.worker = worker;
      if (const Worker* const named = members.Named(worker)) {
        part.address = named->info.address;
        part.process_id = named->info.incarnation.value();
      }
      message.parts.push_back(std::move(part));
    }
  }
  return copies;
}

}  // namespace

void NoteSnapshot(JobEntry& job, const LaunchResult& result, const MeshState& mesh, CoreState& core,
                  Context& context) {
  JobSnapshots::Copying taken{result.snapshot, 0, {}};
  if (!result.reports.empty()) taken.step_seconds = result.reports.back().seconds;
  if (!result.snapshot.error.ok()) {
    job.run->driver().SnapshotEnded(taken.taken, taken.step_seconds);
    return TellSnapshots(
        "no snapshots any more, this run goes on without: " + result.snapshot.error.message, job,
        context);
  }
  if (mesh.order.copies.empty() || !job.snapshots.Copies(mesh.order.gen)) {
    return EndSnapshot(job, taken, core, context);
  }
  for (auto& [worker, copy] : CopiesOf(mesh.order, result.snapshot.step, core.members)) {
    taken.awaited.insert(worker);
    SendToWorker(worker, job, std::move(copy), core, context);
  }
  job.snapshots.AwaitCopies(std::move(taken));
}

bool OnSnapshotCopied(const Worker& worker, const proto::UpBody& body, CoreState& core,
                      Context& context) {
  const auto* const copied = std::get_if<proto::SnapshotCopied>(&body);
  if (copied == nullptr) return false;
  const MeshLife* const mesh = core.meshes.Find(copied->mesh_gen);
  JobEntry* const job = mesh == nullptr ? nullptr : core.book.Find(mesh->job());
  if (job == nullptr || !job->run || job->run->mesh() != copied->mesh_gen) {
    core.tally.CountStale();
    return true;
  }
  core.tally.Count(job->id(), proto::KindName(body));
  if (!copied->error.ok() && job->snapshots.Copies(copied->mesh_gen)) {
    job->snapshots.GiveUpCopies(copied->mesh_gen);
    TellSnapshots(fmt::format("snapshots of this run are not copied any more: worker '{}': {}",
                              worker.info.name, copied->error.message),
                  *job, context);
  }
  const auto ended = job->snapshots.Copied(worker.info.name, copied->step);
  if (!ended) return true;
  EndSnapshot(*job, *ended, core, context);
  if (job->run->halt()) GiveWork(*job, core, context);
  return true;
}

void AskForSnapshots(JobEntry& job, CoreState& core, Context& context) {
  std::set<std::string> asked;
  for (const std::string& name : job.snapshots.workers()) {
    const Worker* const worker = core.members.Named(name);
    if (worker != nullptr && worker->session.value() != 0) asked.insert(name);
  }
  const uint64_t query = job.snapshots.Ask(asked, context.now.ms);
  for (const std::string& worker : asked) {
    SendToWorker(worker, job, proto::QuerySnapshots{job.id(), query}, core, context);
  }
}

void AskArrived(const Worker& worker, CoreState& core, Context& context) {
  for (auto& [id, job] : core.book.all()) {
    if (!job.snapshots.Arrive(worker.info.name, context.now.ms) || !job.recovery) continue;
    SendToWorker(worker.info.name, job, proto::QuerySnapshots{job.id(), job.snapshots.query()},
                 core, context);
  }
}

bool OnSnapshotsHeld(const Worker& worker, const proto::UpBody& body, CoreState& core, Context&) {
  const auto* const held = std::get_if<proto::SnapshotsHeld>(&body);
  if (held == nullptr) return false;
  JobEntry* const job = core.book.Find(held->job);
  if (job == nullptr || !job->recovery) {
    core.tally.CountStale();
    return true;
  }
  core.tally.Count(held->job, proto::KindName(body));
  job->snapshots.Answer(held->query, {worker.info.name, worker.info.address,
                                      worker.info.incarnation.value(), held->slots});
  return true;
}

void KeepSnapshots(CoreState& core, Context& context) {
  for (const JobId id : core.book.recovering()) {
    JobEntry& job = core.book.At(id);
    const std::optional<uint64_t> query = job.snapshots.AskAgain(context.now.ms);
    if (!query || (job.run && job.run->mesh())) continue;
    for (const std::string& worker : job.snapshots.workers()) {
      SendToWorker(worker, job, proto::QuerySnapshots{job.id(), *query}, core, context);
    }
  }
}

namespace {

SnapshotChoice ChooseFor(const JobEntry& job, const std::vector<SnapshotHolder>& holders) {
  const ir::StartPoint on_disk = NewestStart(*job.request, job.record);
  return ChooseSnapshot(holders, TensorsOf(job.recovery->plan),
                        [&](const SnapshotId& id) { return MayStartAt(id, on_disk, job); });
}

bool NeedsMemoryOf(const std::string& worker, JobEntry& job, Now now) {
  if (!job.recovery || !job.snapshots.workers().contains(worker)) return false;
  // A run that has its start reads there, whether it has its mesh yet or not.
  const SnapshotStart* const from = job.run ? job.run->start().snapshots.get() : nullptr;
  if (from != nullptr || (job.run && job.run->mesh())) {
    return from != nullptr && !job.run->restored() &&
           std::any_of(from->files.begin(), from->files.end(),
                       [&](const SnapshotFile& file) { return file.worker == worker; });
  }
  if (!job.snapshots.Settled(now.ms)) return true;
  if (const auto known = job.snapshots.Needs(worker)) return *known;
  std::vector<SnapshotHolder> others = job.snapshots.holders();
  const SnapshotChoice all = ChooseFor(job, others);
  std::erase_if(others, [&](const SnapshotHolder& holder) { return holder.worker == worker; });
  const SnapshotChoice without = ChooseFor(job, others);
  const bool needs = all.start && (!without.start || without.start->id != all.start->id);
  job.snapshots.NoteNeed(worker, needs);
  return needs;
}

}  // namespace

bool HoldsForNextRun(const std::string& worker, CoreState& core, Now now) {
  auto& jobs = core.book.all();
  return std::any_of(jobs.begin(), jobs.end(),
                     [&](auto& each) { return NeedsMemoryOf(worker, each.second, now); });
}

namespace {

// It had copies of what a run goes on to write, and has no part in that.
void LoseKeeper(JobEntry& job, const std::string& worker, CoreState& core, Context& context) {
  if (!job.run || !job.run->mesh()) return;
  const MeshOrder& order = core.meshes.At(*job.run->mesh()).state().order;
  if (!order.keepers.contains(worker) || !job.snapshots.Copies(order.gen)) return;
  job.snapshots.GiveUpCopies(order.gen);
  TellSnapshots(
      fmt::format("snapshots of this run are not copied any more: worker '{}' is gone", worker),
      job, context);
  const auto ended = job.snapshots.CopierLost(worker);
  if (!ended) return;
  EndSnapshot(job, *ended, core, context);
  if (job.run->halt()) GiveWork(job, core, context);
}

}  // namespace

void ForgetSnapshots(const std::string& worker, CoreState& core, Context& context) {
  for (auto& [id, job] : core.book.all()) {
    if (job.recovery) job.snapshots.Lose(worker);
    LoseKeeper(job, worker, core, context);
  }
}

RunStart NewestRunStart(JobEntry& job, Context& context) {
  MW_CHECK(job.recovery.has_value()) << "job " << job.record.id << " has not failed";
  RunStart start{NewestStart(*job.request, job.record), nullptr};
  SnapshotChoice choice = ChooseFor(job, job.snapshots.holders());
  for (const std::string& note : choice.notes) {
    if (!job.recovery->notes.insert(note).second) continue;
    PersistJob(job, false, note, context);
    context.Do(LogLine{job.id(), note});
  }
  if (choice.start) {
    start.point = ir::StartPoint{{}, choice.start->id.step, {}};
    start.snapshots = std::make_shared<const SnapshotStart>(*std::move(choice.start));
  }
  return start;
}

void DropSnapshots(JobEntry& job, CoreState& core, Context& context) {
  const proto::DropSnapshots drop{job.id(), MeshGeneration(core.meshes.next_gen())};
  for (const std::string& worker : job.snapshots.workers()) {
    SendToWorker(worker, job, drop, core, context);
  }
  job.snapshots = JobSnapshots();
}

}  // namespace meshwright::controller
