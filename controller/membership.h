// Membership: which workers the cluster has, in which state, and which job has their devices.
//
// A worker is known by its name for as long as it is listed, and by its session while it is
// connected. States move by the table in controller/states.h; when one did last, changed_ms()
// says: a cluster that has just changed is not judged yet. What becomes of the jobs of a worker
// that goes is the core's business.
//
// Thread rule: the core's thread. Ownership: holds its workers; pointers to one are valid until
// ForgetGone or Admit.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "controller/ids.h"
#include "controller/placement.h"
#include "controller/standings.h"
#include "controller/states.h"
#include "mesh/device_profile.h"
#include "proto/messages.h"

namespace meshwright::controller {

struct Worker {
  proto::Register info;
  SessionId session{0};  // 0: not connected
  WorkerState state = WorkerState::kJoining;
  int64_t last_seen_ms = 0;
  // Since when its session is broken, which stands for it until it comes back or is lost.
  std::optional<int64_t> away_since_ms = {};
  std::vector<JobId> device_job;  // per device; 0: free
  int64_t leave_by_ms = -1;  // it leaves once its jobs have gone, at the latest then; below 0: no
  mesh::SharedProfile profile;  // of each device; null: not measured
};

// A device of a mesh that ends, until its worker has let go of it.
struct EndingDevice {
  std::string worker;
  int local_index = 0;
  JobId job{0};  // of the mesh
};

class Membership {
 public:
  void Begin(int64_t now_ms) { changed_ms_ = now_ms; }
  int64_t changed_ms() const { return changed_ms_; }

  const std::map<std::string, Worker>& all() const { return workers_; }  // by name
  Worker* Of(SessionId session);                                         // null: not connected
  bool Knows(SessionId session) const { return worker_of_session_.contains(session.value()); }
  const Worker* Named(const std::string& name) const;  // null: not known
  // REQUIRES that there is one of this name.
  Worker& At(const std::string& name);
  const Worker& At(const std::string& name) const;

  // A new worker in the place of what had its name. REQUIRES that none of this name is connected.
  void Admit(SessionId session, const proto::Register& info, mesh::SharedProfile profile,
             int64_t now_ms);
  // The same process by another session: its devices stay whose they are. REQUIRES that it is
  // connected, or away.
  void Rejoin(Worker& worker, SessionId session, const proto::Register& info,
              mesh::SharedProfile profile, int64_t now_ms);
  // Whether the table lets the worker's state follow the event.
  bool Apply(Worker& worker, WorkerEvent event, int64_t now_ms);
  // The same for an event that ends the session.
  bool Disconnect(Worker& worker, WorkerEvent event, int64_t now_ms);
  // For `stall_ms` nobody read what workers sent.
  void ForgiveStall(int64_t stall_ms, int64_t now_ms);
  // Those not heard of for suspect_ms are suspects now; returns those of lost_ms.
  std::vector<std::string> FindSilent(int64_t suspect_ms, int64_t lost_ms, int64_t now_ms);
  // The longest gone beyond `most` are not listed any more.
  void ForgetGone(size_t most);

  // Who gets no new work, whatever its state; for all names, listed or not.
  Standings& standings() { return standings_; }
  const Standings& standings() const { return standings_; }

  // job 0: the device is free. REQUIRES: a device of a worker of this name.
  void SetOwner(const std::string& name, int device, JobId job);
  // Free devices of READY workers that are open, in placement order. Of one kind: a mesh never
  // mixes kinds. job: and those that it has.
  std::vector<mesh::Device> FreeDevices(const std::string& kind, JobId job = JobId(0)) const;
  // Those of the devices that come back. A worker that is silent for a moment may be busy letting
  // go; soon it is heard again, or lost.
  ReturningDevices Returning(const std::vector<EndingDevice>& ending,
                             const std::string& kind) const;

 private:
  std::map<std::string, Worker> workers_;
  std::map<uint64_t, std::string> worker_of_session_;
  Standings standings_;
  int64_t changed_ms_ = 0;
};

// As the planner sees it. REQUIRES: a device of a worker of this name.
mesh::Device DeviceOf(const Membership& members, const std::string& name, int index);
// Devices that the cluster has, whether they can be used right now or not: a worker that is
// silent for a moment, or closed for a while, is no reason to call a job too large.
int64_t DeviceCount(const Membership& members, const std::string& kind);
// The cores that the connected workers of a host may use, all together: workers that are kept to
// different ones do not share them. 0: not known.
int HostCores(const Membership& members, const std::string& host);
// What its connected workers say of its memory; 0: nothing.
int64_t HostMemoryBytes(const Membership& members, const std::string& host);

}  // namespace meshwright::controller
