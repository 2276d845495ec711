// The control core: Effects Step(Event, Now). Sans-I/O.
//
// No threads, locks, clocks, files or sockets, so that a whole cluster runs in a test from a seed.
// Identities fence the past: sessions of an older incarnation, generations that ended and launches
// that are not outstanding are dropped and counted. A mesh generation is durable before anyone is
// told of it.
//
// It is made of one value for each noun (controller/core_state.h): who is there (Membership), which
// jobs there are (JobBook), who waits (JobQueue), who asks (JobClients), what lives (MeshLife,
// ActorTable). An event goes to the value that it is of, and what comes out of one is carried to
// the next: core_jobs.h, core_runs.h, core_workers.h, core_clients.h, core_actors.h.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "controller/core_state.h"
#include "controller/core_view.h"
#include "controller/hang_report.h"
#include "controller/restored_jobs.h"

namespace meshwright::controller {

class Core {
 public:
  Core(CoreOptions options, uint64_t next_mesh_gen, std::vector<RestoredJob> jobs,
       std::vector<StandingRecord> standings = {});

  // Jobs that ran under a dead controller recover, or end as FAILED "ControllerRestarted"; queued
  // ones stay queued. First call.
  Effects Start(Now now);
  Effects Step(const Event& event, Now now);

  // ---- what people see; valid between steps ----
  // Errors: kNotFound.
  Result<proto::JobInfo> Job(JobId id) const;
  std::vector<proto::JobInfo> Jobs() const;  // newest first
  std::vector<proto::WorkerInfo> Workers(Now now) const;
  std::vector<proto::WorkerInfo> WorkerTiles() const;  // TilesOf (controller/core_view.h)
  // Errors: kNotFound.
  Result<JobStory> Story(JobId id) const;
  // Where its devices are, and who is suspected. Errors: kNotFound.
  Result<HangReport> Hang(JobId id, Now now) const;
  std::map<std::string, std::vector<int64_t>> DeviceJobs() const;
  std::map<std::string, std::vector<DeviceRun>> DeviceRuns() const;
  std::map<std::string, int64_t> JobCounts() const;     // by state name, every state
  std::map<std::string, int64_t> WorkerCounts() const;  // by state name, every state
  // Whether a worker has registered in this session and has not been lost.
  bool Knows(SessionId session) const { return state_.members.Knows(session); }
  // Control messages of a job, both ways, by kind ("Launch", "LaunchDone", ...).
  MessageTally::Counts MessageCounts(JobId id) const { return state_.tally.Of(id); }
  // Errors: kPermissionDenied: there is no such mesh, it ends, or that is not its key.
  Result<MeshFiles> FilesOf(MeshGeneration gen, const std::string& key) const;
  const MessageTally::Counts& message_totals() const { return state_.tally.totals(); }
  int64_t stale_messages() const { return state_.tally.stale(); }
  const CoreOptions& options() const { return state_.options; }
  // What jobs that have not ended read, and what their meshes run.
  std::set<std::string> BlobsInUse() const;

  // The invariants of the design that are visible here; a test calls it after every step.
  Status CheckInvariants() const;

 private:
  CoreState state_;
  std::vector<RestoredJob> restored_;
};

}  // namespace meshwright::controller
