#include "controller/core_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace meshwright::controller {
namespace {

using Holders = std::map<std::pair<std::string, int>, JobId>;  // by worker and device

Status CheckRequestBytes(const CoreState& core) {
  int64_t bytes = 0;
  for (const auto& [id, job] : core.book.all()) bytes += job.request_bytes;
  if (bytes == core.book.request_bytes() && bytes <= core.options.max_request_bytes) {
    return OkStatus();
  }
  return Internal(fmt::format("requests of {} bytes are counted as {}, at most {} are allowed",
                              bytes, core.book.request_bytes(), core.options.max_request_bytes));
}

Status CheckJob(const JobEntry& job, const CoreState& core) {
  const int64_t id = job.record.id;
  const char* state = proto::JobStateName(job.record.state);
  const bool has_mesh = job.run && job.run->mesh();
  const bool recovers = job.record.state == JobState::kRecovering;
  const bool active = job.record.state == JobState::kStarting ||
                      job.record.state == JobState::kRunning || (recovers && has_mesh);
  const bool planned =
      job.record.state == JobState::kPlanning || (recovers && job.run && !has_mesh);
  if (recovers && !job.recovery) {
    return Internal(fmt::format("job {} recovers from nothing", id));
  }
  if (active != has_mesh) {
    return Internal(
        fmt::format("job {} is {} {} a mesh", id, state, has_mesh ? "with" : "without"));
  }
  if (job.run.has_value() != (active || planned)) {
    return Internal(fmt::format("job {} is {} {} a run", id, state, job.run ? "with" : "without"));
  }
  if (planned && !core.stopping && (!core.queue.IsTrying(job.id()) || job.record.tries < 1)) {
    return Internal(fmt::format("job {} is planned and no try is counted", id));
  }
  if (job.ended() && job.request) {
    return Internal(fmt::format("job {} has ended and still holds its request", id));
  }
  const auto& queue = core.queue.jobs();
  const bool queued = std::count(queue.begin(), queue.end(), job.id()) == 1;
  const bool waits =
      job.record.state == JobState::kQueued || (recovers && job.recovery->replans && !job.run);
  if (queued != waits) {
    return Internal(
        fmt::format("job {} is {} and {}in the queue", id, state, queued ? "" : "not "));
  }
  return OkStatus();
}

Status CheckMesh(const MeshLife& mesh, const CoreState& core) {
  const uint64_t gen = mesh.gen().value();
  const MeshState& state = mesh.state();
  if (gen >= core.meshes.next_gen()) {
    return Internal(fmt::format("generation {} is not used up", gen));
  }
  const JobEntry* const job = core.book.Find(mesh.job());
  const bool runs = job != nullptr && job->run && job->run->mesh() == mesh.gen();
  if (job == nullptr || (!runs && state.phase != MeshPhase::kReleasing)) {
    return Internal(fmt::format("mesh {} does not belong to job {}", gen, mesh.job().value()));
  }
  if (state.launches.size() > static_cast<size_t>(state.limits.launch_window)) {
    return Internal(fmt::format("mesh {} has {} launches in flight", gen, state.launches.size()));
  }
  if (state.phase == MeshPhase::kAborting && state.election.leader().ok()) {
    return Internal(fmt::format("mesh {} is aborting without a cause", gen));
  }
  return OkStatus();
}

Status AddMembers(const MeshLife& mesh, const Membership& members, Holders& holders) {
  for (const MeshMember& member : mesh.state().members) {
    if (member.freed || member.session.value() == 0) continue;
    const Worker* const worker = members.Named(member.worker);
    if (worker == nullptr || worker->session != member.session) {
      return Internal(fmt::format("mesh {} waits for worker {} that is gone", mesh.gen().value(),
                                  member.worker));
    }
    for (const int device : member.local_devices) {
      if (!holders.emplace(std::pair(member.worker, device), mesh.job()).second) {
        return Internal(
            fmt::format("device {} of worker {} is in two meshes", device, member.worker));
      }
    }
  }
  return OkStatus();
}

Status AddReserved(const JobEntry& job, Holders& holders) {
  if (!job.run || job.run->mesh()) return OkStatus();
  for (const RankPlace& rank : job.run->ranks()) {
    if (!holders.emplace(std::pair(rank.worker, rank.local_device), job.id()).second) {
      return Internal(
          fmt::format("device {} of worker {} is held twice", rank.local_device, rank.worker));
    }
  }
  return OkStatus();
}

// A device belongs to at most one mesh, and to one that can still let go of it.
Status CheckDevices(const CoreState& core) {
  Holders holders;
  for (const auto& [gen, mesh] : core.meshes.all()) {
    MW_TRY(AddMembers(mesh, core.members, holders));
  }
  for (const auto& [id, job] : core.book.all()) MW_TRY(AddReserved(job, holders));
  for (const auto& [name, worker] : core.members.all()) {
    for (size_t i = 0; i < worker.device_job.size(); ++i) {
      const auto holder = holders.find(std::pair(name, static_cast<int>(i)));
      const JobId wanted = holder == holders.end() ? JobId(0) : holder->second;
      if (worker.device_job[i] == wanted) continue;
      return Internal(fmt::format("device {} of worker {} is marked for job {}, held by {}", i,
                                  name, worker.device_job[i].value(), wanted.value()));
    }
  }
  return OkStatus();
}

}  // namespace

Status CheckInvariants(const CoreState& core) {
  MW_TRY(CheckRequestBytes(core));
  for (const auto& [id, job] : core.book.all()) MW_TRY(CheckJob(job, core));
  for (const auto& [gen, mesh] : core.meshes.all()) MW_TRY(CheckMesh(mesh, core));
  MW_TRY(core.actors.CheckInvariants());
  return CheckDevices(core);
}

}  // namespace meshwright::controller
