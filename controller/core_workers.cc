#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"
#include "controller/core.h"
#include "controller/placement.h"

namespace meshwright::controller {

using proto::ErrorKind;
using proto::MakeError;

namespace {

Status CheckRoots(const proto::Register& info) {
  constexpr size_t kMostRoots = 64;
  constexpr size_t kMaxPathBytes = 4096;
  const bool long_root =
      std::any_of(info.data_roots.begin(), info.data_roots.end(), [](const ir::DataRoot& root) {
        return root.name.size() > kMaxPathBytes || root.path.size() > kMaxPathBytes;
      });
  if (info.data_roots.size() > kMostRoots || long_root) {
    return InvalidArgument(fmt::format(
        "worker '{}' registers {} data roots; at most {} of {} bytes are allowed",
        TruncateUtf8(info.name, 64), info.data_roots.size(), kMostRoots, kMaxPathBytes));
  }
  return OkStatus();
}

// What a worker says of itself is shown in listings and told to its peers: it must stay small.
Status CheckSizes(const proto::Register& info) {
  constexpr size_t kMaxTextBytes = 256;
  const std::pair<const char*, const std::string*> texts[] = {
      {"name", &info.name},       {"data address", &info.address},
      {"host id", &info.host_id}, {"metrics address", &info.metrics_address},
      {"version", &info.version}, {"device name", &info.device_name},
  };
  for (const auto& [what, text] : texts) {
    if (text->size() <= kMaxTextBytes) continue;
    return InvalidArgument(
        fmt::format("worker '{}' registers a {} of {} bytes; at most {} are "
                    "allowed",
                    TruncateUtf8(info.name, 64), what, text->size(), kMaxTextBytes));
  }
  for (const auto& [what, text] : texts) {
    if (IsPrintable(*text)) continue;
    return InvalidArgument(
        fmt::format("worker '{}' registers the {} '{}'; control characters are not allowed, they "
                    "would change what a terminal shows",
                    Printable(TruncateUtf8(info.name, 64)), what, Printable(*text)));
  }
  constexpr int64_t kMostMemoryBytes = int64_t{1} << 50;
  if (info.memory_bytes < 0 || info.memory_bytes > kMostMemoryBytes) {
    return InvalidArgument(
        fmt::format("worker '{}' registers devices of {} bytes of memory; 0 to {} are allowed",
                    info.name, info.memory_bytes, kMostMemoryBytes));
  }
  if (const std::string kind = KindOf(info); kind != "cpu" && kind != "cuda") {
    return InvalidArgument(
        fmt::format("worker '{}' registers devices of the kind '{}'; known are cpu and cuda",
                    TruncateUtf8(info.name, 64), TruncateUtf8(kind, 64)));
  }
  constexpr size_t kMaxProfileBytes = 16 << 10;
  if (info.device_profile.size() > kMaxProfileBytes) {
    return InvalidArgument(
        fmt::format("worker '{}' registers a device profile of {} bytes; at most {} are allowed",
                    TruncateUtf8(info.name, 64), info.device_profile.size(), kMaxProfileBytes));
  }
  if (info.threads_per_device < 0 || info.host_cores < 0) {
    return InvalidArgument(fmt::format("worker '{}' registers {} threads per device on {} cores",
                                       TruncateUtf8(info.name, 64), info.threads_per_device,
                                       info.host_cores));
  }
  MW_TRY(CheckRoots(info));
  constexpr size_t kMostCpus = 4096;
  if (info.cpus.size() > kMostCpus) {
    return InvalidArgument(fmt::format("worker '{}' registers {} cores; at most {} are allowed",
                                       TruncateUtf8(info.name, 64), info.cpus.size(), kMostCpus));
  }
  constexpr size_t kMostActorTypes = 1024;
  size_t type_bytes = 0;
  for (const std::string& type : info.actor_types) type_bytes += type.size();
  if (info.actor_types.size() > kMostActorTypes || type_bytes > kMostActorTypes * 64) {
    return InvalidArgument(fmt::format(
        "worker '{}' registers {} actor types in {} bytes; at most {} in {} are allowed",
        TruncateUtf8(info.name, 64), info.actor_types.size(), type_bytes, kMostActorTypes,
        kMostActorTypes * 64));
  }
  if (info.name.empty() || info.devices < 1 || info.devices > 4096) {
    return InvalidArgument(
        fmt::format("worker '{}' registers {} devices; a name and 1 to 4096 devices are needed",
                    info.name, info.devices));
  }
  return OkStatus();
}

// Null where the worker did not measure.
Result<mesh::SharedProfile> ProfileOf(const proto::Register& info) {
  if (info.device_profile.empty()) return mesh::SharedProfile{};
  auto profile = mesh::ParseDeviceProfile(info.device_profile);
  if (profile) return std::make_shared<const mesh::DeviceProfile>(std::move(*profile));
  return Fail(
      InvalidArgument(fmt::format("worker '{}' registers a device profile that cannot be "
                                  "read: {}; start it with --profile=off",
                                  info.name, profile.error().message())));
}

}  // namespace

void Core::On(const WorkerMessage& event, Context& context) {
  if (const auto* info = std::get_if<proto::Register>(&event.message.body)) {
    Admit(event.session, *info, context);
    return;
  }
  Worker* worker = WorkerOf(event.session);
  if (worker == nullptr) {
    ++stale_messages_;
    return;
  }
  if (event.message.term != options_.term) {
    ++stale_messages_;
    const std::string text = fmt::format("a message of term {} reached the controller of term {}",
                                         event.message.term.value(), options_.term.value());
    context.effects.push_back(CloseSession{event.session, FailedPrecondition(text)});
    LoseWorker(*worker, WorkerEvent::kClosed, text, context);
    return;
  }
  worker->last_seen_ms = context.now.ms;
  if (const auto next = Next(worker->state, WorkerEvent::kSeen)) {
    if (worker->state != *next) membership_changed_ms_ = context.now.ms;
    worker->state = *next;
  }
  if (const auto* leave = std::get_if<proto::Leave>(&event.message.body)) {
    OnLeave(*worker, *leave, context);
    return;
  }
  if (OnActor(*worker, event.message.body, context)) return;
  OnMesh(*worker, event.message.body, context);
}

Status Core::CheckAdmission(const proto::Register& info) const {
  if (stopping_) return Unavailable("the controller is stopping");
  if (info.protocol_major != proto::kProtocolMajor) {
    return FailedPrecondition(
        fmt::format("worker '{}' {} speaks protocol {}.{}, this controller {} speaks {}.{}; "
                    "install the same version on both",
                    info.name, info.version, info.protocol_major, info.protocol_minor,
                    proto::kVersion, proto::kProtocolMajor, proto::kProtocolMinor));
  }
  if (!info.cluster_id.empty() && info.cluster_id != options_.cluster_id) {
    return FailedPrecondition(
        fmt::format("worker '{}' belongs to cluster {}, this controller is of cluster {}; restart "
                    "the worker to move it",
                    info.name, info.cluster_id, options_.cluster_id));
  }
  if (info.max_term > options_.term) {
    return FailedPrecondition(
        fmt::format("worker '{}' has served a controller of term {}; this one, of term {}, is out "
                    "of date and should be stopped",
                    info.name, info.max_term.value(), options_.term.value()));
  }
  MW_TRY(CheckSizes(info));
  const auto known = workers_.find(info.name);
  if (known != workers_.end()) {
    const Worker& old = known->second;
    const bool alive = old.state == WorkerState::kReady || old.state == WorkerState::kJoining;
    if (alive && old.info.incarnation != info.incarnation) {
      return AlreadyExists(
          fmt::format("a worker named '{}' is already connected (data address {}); choose another "
                      "--name",
                      info.name, old.info.address));
    }
  }
  return OkStatus();
}

void Core::Admit(SessionId session, const proto::Register& info, Context& context) {
  if (WorkerOf(session) != nullptr) {
    ++stale_messages_;
    return;
  }
  if (const Status status = CheckAdmission(info); !status.ok()) {
    context.effects.push_back(CloseSession{session, status});
    return;
  }
  const Result<mesh::SharedProfile> profile = ProfileOf(info);
  if (!profile) {
    context.effects.push_back(CloseSession{session, profile.error()});
    return;
  }
  const auto known = workers_.find(info.name);
  if (known != workers_.end() && known->second.session.value() != 0) {
    const SessionId old = known->second.session;
    context.effects.push_back(CloseSession{old, Aborted("replaced by a newer session")});
    LoseWorker(known->second, WorkerEvent::kReplaced, "it registered again", context);
  }
  Worker worker;
  worker.info = info;
  worker.profile = *profile;
  worker.session = session;
  worker.last_seen_ms = context.now.ms;
  worker.device_job.assign(static_cast<size_t>(info.devices), JobId(0));
  workers_[info.name] = std::move(worker);
  worker_of_session_[session.value()] = info.name;
  membership_changed_ms_ = context.now.ms;
  CountMessage(JobId(0), "Register");
  CountMessage(JobId(0), "Welcome");
  proto::DownMessage welcome{
      options_.term,
      proto::Welcome{options_.cluster_id, options_.heartbeat_ms, options_.worker_lost_ms}};
  context.effects.push_back(Send{JobId(0), session, std::move(welcome)});
}

void Core::On(const SessionClosed& event, Context& context) {
  if (Worker* worker = WorkerOf(event.session)) {
    LoseWorker(*worker, WorkerEvent::kClosed, fmt::format("its session ended ({})", event.why),
               context);
  }
}

void Core::OnLeave(Worker& worker, const proto::Leave& leave, Context& context) {
  const auto next = Next(worker.state, WorkerEvent::kLeave);
  if (!next) return;
  worker.state = *next;
  membership_changed_ms_ = context.now.ms;
  const std::string text = fmt::format("worker '{}' was stopped{}{}", worker.info.name,
                                       leave.reason.empty() ? "" : ": ", leave.reason);
  const auto error = MakeError(ErrorKind::kWorkerStopped, Aborted(text).WithBlame(Blame::kInfra),
                               worker.info.name);
  for (uint64_t gen : Generations()) {
    const auto it = meshes_.find(gen);
    if (it == meshes_.end()) continue;
    Mesh& mesh = it->second;
    const bool member =
        std::any_of(mesh.members.begin(), mesh.members.end(),
                    [&](const MeshMember& m) { return m.session == worker.session && !m.freed; });
    if (member) FailMesh(mesh, error, context);
  }
  UnplaceUsersOf(worker, text, context);
}

// The session is over for good: its meshes lose a member, its reservations end.
void Core::LoseWorker(Worker& worker, WorkerEvent event, const std::string& why, Context& context) {
  const auto next = Next(worker.state, event);
  if (!next) return;
  const SessionId session = worker.session;
  worker.state = *next;
  worker.session = SessionId(0);
  worker_of_session_.erase(session.value());
  membership_changed_ms_ = context.now.ms;
  const bool left = *next == WorkerState::kLeft;
  const std::string text =
      fmt::format("worker '{}' (data address {}, {} devices) was {}: {}", worker.info.name,
                  worker.info.address, worker.info.devices, left ? "stopped" : "lost", why);
  const auto error = MakeError(left ? ErrorKind::kWorkerStopped : ErrorKind::kWorkerLost,
                               Unavailable(text).WithBlame(Blame::kInfra), worker.info.name);
  Persist persist{JobId(0), false, CallId(0), {}};
  persist.batch.events.push_back(EventRecord{context.now.unix_ms, 0, text});
  context.effects.push_back(std::move(persist));

  for (uint64_t gen : Generations()) {
    const auto it = meshes_.find(gen);
    if (it == meshes_.end()) continue;
    for (MeshMember& member : it->second.members) {
      if (member.session != session) continue;
      MemberGone(it->second, member, error, context);
      break;
    }
  }
  Carry(actors_.WorkerGone(worker.info.name, text, context.now.ms), context);
  UnplaceUsersOf(worker, text, context);
  worker.device_job.assign(worker.device_job.size(), JobId(0));
}

// Jobs in PLANNING on this worker go back to the queue: nobody was told of a mesh yet.
void Core::UnplaceUsersOf(const Worker& worker, const std::string& why, Context& context) {
  for (auto& [id, job] : jobs_) {
    if (job.record.state != JobState::kPlanning) continue;
    const bool uses = std::any_of(job.ranks.begin(), job.ranks.end(), [&](const RankPlace& rank) {
      return rank.worker == worker.info.name;
    });
    if (uses) Unplace(job, why, context);
  }
}

void Core::CheckLiveness(Context& context) {
  // A stall of this loop is not the workers' silence: what was sent meanwhile is still waiting to
  // be read.
  constexpr int64_t kStallCapMs = 30'000;
  const int64_t late_ms = last_tick_ms_ < 0 ? 0 : context.now.ms - last_tick_ms_ - 1000;
  const int64_t stall_ms = std::min(late_ms, kStallCapMs);
  if (stall_ms > 0) {
    for (auto& [name, worker] : workers_) {
      worker.last_seen_ms = std::min(context.now.ms, worker.last_seen_ms + stall_ms);
    }
  }
  std::vector<std::string> silent;
  for (auto& [name, worker] : workers_) {
    if (worker.session.value() == 0) continue;
    const int64_t silence_ms = context.now.ms - worker.last_seen_ms;
    if (silence_ms > options_.suspect_ms) {
      if (const auto next = Next(worker.state, WorkerEvent::kSilent)) {
        worker.state = *next;
        membership_changed_ms_ = context.now.ms;
      }
    }
    if (silence_ms > options_.worker_lost_ms) silent.push_back(name);
  }
  for (const std::string& name : silent) {
    Worker& worker = workers_.at(name);
    const SessionId session = worker.session;
    const double seconds = static_cast<double>(context.now.ms - worker.last_seen_ms) / 1000.0;
    LoseWorker(worker, WorkerEvent::kExpired, fmt::format("no sign of life for {:.1f} s", seconds),
               context);
    context.effects.push_back(
        CloseSession{session, DeadlineExceeded(fmt::format("silent for {:.1f} s", seconds))});
  }
  TrimWorkers();
}

// Forgets the longest gone workers beyond the cap.
void Core::TrimWorkers() {
  std::vector<std::pair<int64_t, std::string>> gone;
  for (const auto& [name, worker] : workers_) {
    if (worker.session.value() == 0) gone.emplace_back(worker.last_seen_ms, name);
  }
  if (gone.size() <= options_.max_gone_workers) return;
  std::sort(gone.begin(), gone.end());
  gone.resize(gone.size() - options_.max_gone_workers);
  for (const auto& [seen, name] : gone) workers_.erase(name);
}

// Frees the job's devices on one worker, or on all when `worker` is empty.
void Core::FreeDevices(JobId job, const std::string& worker) {
  for (auto& [name, entry] : workers_) {
    if (!worker.empty() && name != worker) continue;
    for (JobId& owner : entry.device_job) {
      if (owner == job) owner = JobId(0);
    }
  }
}

Core::Worker* Core::WorkerOf(SessionId session) {
  const auto it = worker_of_session_.find(session.value());
  return it == worker_of_session_.end() ? nullptr : &workers_.at(it->second);
}

// Free devices of READY workers, in placement order.
std::vector<mesh::Device> Core::PlaceableDevices(const std::string& kind) const {
  std::vector<mesh::Device> devices;
  for (const auto& [name, worker] : workers_) {
    if (worker.state != WorkerState::kReady || KindOf(worker.info) != kind) continue;
    for (size_t i = 0; i < worker.device_job.size(); ++i) {
      if (worker.device_job[i].value() != 0) continue;
      mesh::Device device;
      device.worker = name;
      device.local_index = static_cast<int>(i);
      device.host = worker.info.host_id;
      device.memory_bytes = worker.info.memory_bytes;
      device.profile = worker.profile;
      device.threads = std::max(1, worker.info.threads_per_device);
      devices.push_back(std::move(device));
    }
  }
  return devices;
}

// Devices whose job is ending, until their mesh is gone. A worker that is silent for a moment may
// be busy letting go; soon it is heard again, or lost.
ReturningDevices Core::DevicesThatReturn(const std::string& kind) const {
  std::set<int64_t> ending;
  for (const auto& [generation, mesh] : meshes_) {
    const bool ends = mesh.phase == MeshPhase::kReleasing || mesh.phase == MeshPhase::kAborting;
    if (ends) ending.insert(mesh.job.value());
  }
  ReturningDevices returning;
  std::set<int64_t> jobs;
  for (const auto& [name, worker] : workers_) {
    if (worker.state != WorkerState::kReady && worker.state != WorkerState::kSuspect) continue;
    if (KindOf(worker.info) != kind) continue;
    for (const JobId job : worker.device_job) {
      if (ending.count(job.value()) == 0) continue;
      ++returning.count;
      jobs.insert(job.value());
    }
  }
  returning.jobs.assign(jobs.begin(), jobs.end());
  return returning;
}

// The cores that the connected workers of a host may use, all together: workers that are kept to
// different ones do not share them. 0: not known.
int Core::HostCores(const std::string& host) const {
  std::set<int32_t> cpus;
  int32_t most = 0;
  bool all_say_which = true;
  for (const auto& [name, worker] : workers_) {
    if (worker.info.host_id != host || worker.session.value() == 0) continue;
    cpus.insert(worker.info.cpus.begin(), worker.info.cpus.end());
    most = std::max(most, worker.info.host_cores);
    all_say_which = all_say_which && !worker.info.cpus.empty();
  }
  return all_say_which ? static_cast<int>(cpus.size()) : most;
}

// Devices that the cluster has, whether they can be used right now or not: a worker that is silent
// for a moment is no reason to call a job too large.
int64_t Core::ClusterDevices(const std::string& kind) const {
  size_t devices = 0;
  for (const auto& [name, worker] : workers_) {
    const bool stays = worker.state == WorkerState::kJoining ||
                       worker.state == WorkerState::kReady || worker.state == WorkerState::kSuspect;
    if (stays && KindOf(worker.info) == kind) devices += worker.device_job.size();
  }
  return static_cast<int64_t>(devices);
}

}  // namespace meshwright::controller
