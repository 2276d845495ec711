// What people see of the core, and the invariants that tests check.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "controller/core.h"

namespace meshwright::controller {

std::string EndText(const JobRecord& job) {
  const char* state = proto::JobStateName(job.state);
  if (job.reason.empty()) return fmt::format("{} after {} steps", state, job.steps_done);
  return fmt::format("{} ({}): {}", state, job.reason, job.message);
}

proto::JobInfo Core::InfoOf(const JobEntry& job) const {
  const JobRecord& record = job.record;
  proto::JobInfo info;
  info.id = record.id;
  info.name = record.name;
  info.state = record.state;
  info.reason = record.reason;
  info.message = record.message;
  info.steps_done = record.steps_done;
  info.steps = record.steps;
  info.loss = record.loss;
  info.layout = record.layout;
  info.directory = fmt::format("{}/{}", options_.jobs_dir, record.id);
  info.submitted_unix_ms = record.submitted_unix_ms;
  info.started_unix_ms = record.started_unix_ms;
  info.ended_unix_ms = record.ended_unix_ms;
  info.device_memory_bytes = job.device_memory_bytes;
  info.device_budget_bytes = job.device_budget_bytes;
  info.peak_flops_per_s = job.peak_flops_per_s;
  return info;
}

Result<proto::JobInfo> Core::Job(JobId id) const {
  const auto it = jobs_.find(id.value());
  if (it == jobs_.end()) return Fail(NotFound(fmt::format("there is no job {}", id.value())));
  return InfoOf(it->second);
}

std::vector<proto::JobInfo> Core::Jobs() const {
  std::vector<proto::JobInfo> infos;
  for (auto it = jobs_.rbegin(); it != jobs_.rend(); ++it) {
    infos.push_back(InfoOf(it->second));
  }
  return infos;
}

std::vector<proto::WorkerInfo> Core::Workers(Now now) const {
  std::vector<proto::WorkerInfo> infos;
  for (const auto& [name, worker] : members_.all()) {
    proto::WorkerInfo info;
    info.name = name;
    info.host = worker.info.host_id;
    info.state = Name(worker.state);
    info.devices = worker.info.devices;
    info.busy_devices =
        static_cast<int32_t>(std::count_if(worker.device_job.begin(), worker.device_job.end(),
                                           [](JobId job) { return job.value() != 0; }));
    info.memory_bytes = worker.info.memory_bytes;
    info.address = worker.info.address;
    info.metrics_address = worker.info.metrics_address;
    info.device_profile = worker.info.device_profile;
    info.threads_per_device = worker.info.threads_per_device;
    info.host_cores = members_.HostCores(worker.info.host_id);
    info.device_kind = KindOf(worker.info);
    info.device_name = worker.info.device_name;
    info.data_roots = worker.info.data_roots;
    info.last_seen_s = static_cast<double>(now.ms - worker.last_seen_ms) / 1000.0;
    infos.push_back(std::move(info));
  }
  return infos;
}

std::map<std::string, int64_t> Core::JobCounts() const {
  std::map<std::string, int64_t> counts;
  for (int i = 1; i < proto::kJobStateCount; ++i) {
    counts[proto::JobStateName(static_cast<JobState>(i))] = 0;
  }
  for (const auto& [id, job] : jobs_) ++counts[proto::JobStateName(job.record.state)];
  return counts;
}

std::map<std::string, int64_t> Core::WorkerCounts() const {
  std::map<std::string, int64_t> counts;
  for (int i = 0; i < kWorkerStateCount; ++i) counts[Name(static_cast<WorkerState>(i))] = 0;
  for (const auto& [name, worker] : members_.all()) ++counts[Name(worker.state)];
  return counts;
}

std::map<std::string, int64_t> Core::MessageCounts(JobId id) const {
  const auto it = jobs_.find(id.value());
  return it == jobs_.end() ? std::map<std::string, int64_t>{} : it->second.messages;
}

std::set<std::string> Core::BlobsOf(const JobEntry& job) const {
  std::set<std::string> blobs;
  if (job.request) {
    for (const ir::BlobRef& blob : ir::BlobsOf(*job.request)) blobs.insert(blob.sha256);
  }
  if (job.mesh) {
    const PlannedJob& plan = meshes_.at(job.mesh->value()).plan;
    blobs.insert(plan.graph.sha256);
    for (const PlannedDevice& device : plan.devices) {
      for (const ir::BlobRef& program : device.programs) blobs.insert(program.sha256);
    }
  }
  blobs.erase("");  // none
  return blobs;
}

std::set<std::string> Core::BlobsInUse() const {
  std::set<std::string> blobs;
  for (const auto& [id, job] : jobs_) blobs.merge(BlobsOf(job));
  return blobs;
}

Status Core::CheckInvariants() const {
  MW_TRY(CheckJobs());
  MW_TRY(CheckMeshTable());
  MW_TRY(actors_.CheckInvariants());
  return CheckDevices();
}

Status Core::CheckJobs() const {
  int64_t request_bytes = 0;
  for (const auto& [id, job] : jobs_) request_bytes += job.request_bytes;
  if (request_bytes != request_bytes_ || request_bytes_ > options_.max_request_bytes) {
    return Internal(fmt::format("requests of {} bytes are counted as {}, at most {} are allowed",
                                request_bytes, request_bytes_, options_.max_request_bytes));
  }
  for (const auto& [id, job] : jobs_) {
    const char* state = proto::JobStateName(job.record.state);
    const bool active =
        job.record.state == JobState::kStarting || job.record.state == JobState::kRunning;
    if (active != (job.mesh && !proto::IsTerminal(job.record.state))) {
      return Internal(
          fmt::format("job {} is {} {} a mesh", id, state, job.mesh ? "with" : "without"));
    }
    if (job.record.state == JobState::kPlanning && !stopping_ &&
        (!job.trying || job.record.tries < 1)) {
      return Internal(fmt::format("job {} is planned and no try is counted", id));
    }
    if (proto::IsTerminal(job.record.state) && (job.request || !job.ranks.empty())) {
      return Internal(fmt::format("job {} has ended and still holds its request or ranks", id));
    }
    const bool queued = std::count(queue_.begin(), queue_.end(), id) == 1;
    if (queued != (job.record.state == JobState::kQueued)) {
      return Internal(
          fmt::format("job {} is {} and {}in the queue", id, state, queued ? "" : "not "));
    }
  }
  return OkStatus();
}

Status Core::CheckMeshTable() const {
  for (const auto& [gen, mesh] : meshes_) {
    if (gen >= next_mesh_gen_) return Internal(fmt::format("generation {} is not used up", gen));
    const auto job = jobs_.find(mesh.job.value());
    if (job == jobs_.end() || job->second.mesh != mesh.gen) {
      return Internal(fmt::format("mesh {} does not belong to job {}", gen, mesh.job.value()));
    }
    if (mesh.launches.size() > static_cast<size_t>(options_.launch_window)) {
      return Internal(fmt::format("mesh {} has {} launches in flight", gen, mesh.launches.size()));
    }
    if (mesh.phase == MeshPhase::kAborting && mesh.cause.ok()) {
      return Internal(fmt::format("mesh {} is aborting without a cause", gen));
    }
  }
  return OkStatus();
}

// A device belongs to at most one mesh, and to one that can still let go of it.
Status Core::CheckDevices() const {
  std::map<std::pair<std::string, int>, JobId> holders;
  for (const auto& [gen, mesh] : meshes_) {
    for (const MeshMember& member : mesh.members) {
      if (member.freed) continue;
      const Worker* const worker = members_.Named(member.worker);
      if (worker == nullptr || worker->session != member.session) {
        return Internal(
            fmt::format("mesh {} waits for worker {} that is gone", gen, member.worker));
      }
      for (int device : member.local_devices) {
        if (!holders.emplace(std::pair(member.worker, device), mesh.job).second) {
          return Internal(
              fmt::format("device {} of worker {} is in two meshes", device, member.worker));
        }
      }
    }
  }
  for (const auto& [id, job] : jobs_) {
    if (job.record.state != JobState::kPlanning) continue;
    for (const RankPlace& rank : job.ranks) {
      if (!holders.emplace(std::pair(rank.worker, rank.local_device), JobId(id)).second) {
        return Internal(
            fmt::format("device {} of worker {} is held twice", rank.local_device, rank.worker));
      }
    }
  }
  for (const auto& [name, worker] : members_.all()) {
    for (size_t i = 0; i < worker.device_job.size(); ++i) {
      const auto holder = holders.find(std::pair(name, static_cast<int>(i)));
      const JobId wanted = holder == holders.end() ? JobId(0) : holder->second;
      if (worker.device_job[i] != wanted) {
        return Internal(fmt::format("device {} of worker {} is marked for job {}, held by {}", i,
                                    name, worker.device_job[i].value(), wanted.value()));
      }
    }
  }
  return OkStatus();
}

}  // namespace meshwright::controller
