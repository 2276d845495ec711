#include "controller/membership.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "controller/host_means.h"

namespace meshwright::controller {

Worker* Membership::Of(SessionId session) {
  const auto it = worker_of_session_.find(session.value());
  return it == worker_of_session_.end() ? nullptr : &At(it->second);
}

const Worker* Membership::Named(const std::string& name) const {
  const auto it = workers_.find(name);
  return it == workers_.end() ? nullptr : &it->second;
}

Worker& Membership::At(const std::string& name) {
  const auto it = workers_.find(name);
  MW_CHECK(it != workers_.end()) << "worker '" << name << "' is not listed";
  return it->second;
}

const Worker& Membership::At(const std::string& name) const {
  const auto it = workers_.find(name);
  MW_CHECK(it != workers_.end()) << "worker '" << name << "' is not listed";
  return it->second;
}

void Membership::Admit(SessionId session, const proto::Register& info, mesh::SharedProfile profile,
                       int64_t now_ms) {
  const Worker* const known = Named(info.name);
  MW_CHECK(known == nullptr || known->session.value() == 0)
      << "worker '" << info.name << "' is connected by session " << known->session;
  MW_CHECK(session.value() != 0 && info.devices >= 1)
      << "worker '" << info.name << "' of " << info.devices << " devices, session " << session;
  Worker worker;
  worker.info = info;
  worker.profile = std::move(profile);
  worker.session = session;
  worker.last_seen_ms = now_ms;
  worker.device_job.assign(static_cast<size_t>(info.devices), JobId(0));
  workers_[info.name] = std::move(worker);
  worker_of_session_[session.value()] = info.name;
  changed_ms_ = now_ms;
}

void Membership::Rejoin(Worker& worker, SessionId session, const proto::Register& info,
                        mesh::SharedProfile profile, int64_t now_ms) {
  MW_CHECK(worker_of_session_.erase(worker.session.value()) == 1 && session.value() != 0)
      << "worker '" << info.name << "' is not connected by session " << worker.session;
  worker.info = info;
  worker.profile = std::move(profile);
  worker.session = session;
  worker.last_seen_ms = now_ms;
  worker.away_since_ms.reset();
  worker.device_job.resize(static_cast<size_t>(info.devices), JobId(0));
  worker_of_session_[session.value()] = info.name;
  changed_ms_ = now_ms;
}

bool Membership::Apply(Worker& worker, WorkerEvent event, int64_t now_ms) {
  const auto next = Next(worker.state, event);
  if (!next) return false;
  if (worker.state != *next) changed_ms_ = now_ms;
  worker.state = *next;
  return true;
}

bool Membership::Disconnect(Worker& worker, WorkerEvent event, int64_t now_ms) {
  if (!Apply(worker, event, now_ms)) return false;
  MW_CHECK(worker_of_session_.erase(worker.session.value()) == 1)
      << "worker '" << worker.info.name << "' is not connected by session " << worker.session;
  worker.session = SessionId(0);
  worker.away_since_ms.reset();
  changed_ms_ = now_ms;
  return true;
}

void Membership::ForgiveStall(int64_t stall_ms, int64_t now_ms) {
  MW_CHECK(stall_ms >= 0) << "a stall of " << stall_ms << " ms";
  for (auto& [name, worker] : workers_) {
    worker.last_seen_ms = std::min(now_ms, worker.last_seen_ms + stall_ms);
    if (worker.away_since_ms) {
      worker.away_since_ms = std::min(now_ms, *worker.away_since_ms + stall_ms);
    }
  }
}

std::vector<std::string> Membership::FindSilent(int64_t suspect_ms, int64_t lost_ms,
                                                int64_t now_ms) {
  std::vector<std::string> silent;
  for (auto& [name, worker] : workers_) {
    if (worker.session.value() == 0) continue;
    const int64_t silence_ms = now_ms - worker.last_seen_ms;
    if (silence_ms > suspect_ms) (void)Apply(worker, WorkerEvent::kSilent, now_ms);
    if (silence_ms > lost_ms) silent.push_back(name);
  }
  return silent;
}

void Membership::ForgetGone(size_t most) {
  std::vector<std::pair<int64_t, std::string>> gone;
  for (const auto& [name, worker] : workers_) {
    if (worker.session.value() == 0) gone.emplace_back(worker.last_seen_ms, name);
  }
  if (gone.size() <= most) return;
  std::sort(gone.begin(), gone.end());
  gone.resize(gone.size() - most);
  for (const auto& [seen, name] : gone) workers_.erase(name);
}

void Membership::SetOwner(const std::string& name, int device, JobId job) {
  std::vector<JobId>& owners = At(name).device_job;
  MW_CHECK(device >= 0 && static_cast<size_t>(device) < owners.size())
      << "device " << device << " of the " << owners.size() << " of worker '" << name << "'";
  JobId& owner = owners[static_cast<size_t>(device)];
  MW_CHECK(job.value() == 0 || owner.value() == 0)
      << "device " << device << " of worker '" << name << "' is job " << owner << "'s";
  owner = job;
}

mesh::Device DeviceOf(const Membership& members, const std::string& name, int index) {
  const Worker& worker = members.At(name);
  mesh::Device device;
  device.worker = name;
  device.local_index = index;
  device.host = worker.info.host_id;
  device.memory_bytes = worker.info.memory_bytes;
  device.disk = mesh::DiskOf(KindOf(worker.info) != "cpu", worker.info.no_scratch_dir);
  device.disk_bytes = worker.info.disk_bytes;
  device.profile = worker.profile;
  device.threads = std::max(1, worker.info.threads_per_device);
  return device;
}

std::vector<mesh::Device> Membership::FreeDevices(const std::string& kind, JobId job) const {
  std::vector<mesh::Device> devices;
  for (const auto& [name, worker] : workers_) {
    if (worker.state != WorkerState::kReady || KindOf(worker.info) != kind) continue;
    if (!standings_.IsOpen(name)) continue;
    for (size_t i = 0; i < worker.device_job.size(); ++i) {
      const JobId owner = worker.device_job[i];
      if (owner.value() != 0 && owner != job) continue;
      devices.push_back(DeviceOf(*this, name, static_cast<int>(i)));
    }
  }
  return devices;
}

ReturningDevices Membership::Returning(const std::vector<EndingDevice>& ending,
                                       const std::string& kind) const {
  ReturningDevices returning;
  std::set<int64_t> jobs;
  for (const EndingDevice& device : ending) {
    const Worker* const worker = Named(device.worker);
    if (worker == nullptr || KindOf(worker->info) != kind) continue;
    if (!standings_.IsOpen(device.worker)) continue;
    if (worker->state != WorkerState::kReady && worker->state != WorkerState::kSuspect) continue;
    ++returning.count;
    jobs.insert(device.job.value());
  }
  returning.jobs.assign(jobs.begin(), jobs.end());
  return returning;
}

int64_t DeviceCount(const Membership& members, const std::string& kind) {
  size_t devices = 0;
  for (const auto& [name, worker] : members.all()) {
    const bool stays = worker.state == WorkerState::kJoining ||
                       worker.state == WorkerState::kReady || worker.state == WorkerState::kSuspect;
    if (stays && KindOf(worker.info) == kind) devices += worker.device_job.size();
  }
  return static_cast<int64_t>(devices);
}

int HostCores(const Membership& members, const std::string& host) {
  return MeansOfHosts(members)[host].cores;
}

int64_t HostMemoryBytes(const Membership& members, const std::string& host) {
  return MeansOfHosts(members)[host].memory_bytes;
}

}  // namespace meshwright::controller
