// The control core: membership, queue, meshes, launches, failures. Sans-I/O: Effects Step(Event,
// Now).
//
// No threads, locks, clocks, files or sockets, so that a whole cluster runs in a test from a seed.
// Identities fence the past: sessions of an older incarnation, generations that ended and launches
// that are not outstanding are dropped and counted. A mesh generation is durable before anyone is
// told of it.
//
// Failure of a mesh: the first error aborts every member at once. The cause is elected while they
// let go: a lost worker or an error that no peer's death explains beats one that it may explain;
// the rest are counted. The job then ends with that one cause. Its devices are free when their
// worker has confirmed, or is gone.
//
// Thread rule: one thread. Files: core.cc dispatch, submit, cancel, queue; core_workers.cc
// who comes and goes (controller/membership.h); core_mesh.cc life of a mesh; core_clients.cc who
// asks it; core_actors.cc host actors; core_failure.cc its end; core_view.cc what people see.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/actor_table.h"
#include "controller/client_desk.h"
#include "controller/core_options.h"
#include "controller/driver.h"
#include "controller/events.h"
#include "controller/kind_placement.h"
#include "controller/membership.h"
#include "controller/restored_jobs.h"
#include "controller/states.h"

namespace meshwright::controller {

class Core {
 public:
  Core(CoreOptions options, uint64_t next_mesh_gen, std::vector<RestoredJob> jobs);

  // Jobs that ran under a dead controller end as FAILED "ControllerRestarted"; queued ones stay
  // queued. First call.
  Effects Start(Now now);
  Effects Step(const Event& event, Now now);

  // ---- what people see; valid between steps ----
  // Errors: kNotFound.
  Result<proto::JobInfo> Job(JobId id) const;
  std::vector<proto::JobInfo> Jobs() const;  // newest first
  std::vector<proto::WorkerInfo> Workers(Now now) const;
  std::map<std::string, int64_t> JobCounts() const;     // by state name, every state
  std::map<std::string, int64_t> WorkerCounts() const;  // by state name, every state
  // Whether a worker has registered in this session and has not been lost.
  bool Knows(SessionId session) const { return members_.Knows(session); }
  // Control messages of a job, both ways, by kind ("Launch", "LaunchDone", ...).
  std::map<std::string, int64_t> MessageCounts(JobId id) const;
  const std::map<std::string, int64_t>& message_totals() const { return message_totals_; }
  int64_t stale_messages() const { return stale_messages_; }
  const ActorTable& actors() const { return actors_; }
  const CoreOptions& options() const { return options_; }
  // What jobs that have not ended read, and what their meshes run.
  std::set<std::string> BlobsInUse() const;

  // The invariants of the design that are visible here; a test calls it after every step.
  Status CheckInvariants() const;

 private:
  struct RankPlace {
    std::string worker;
    int local_device = 0;
  };
  struct JobEntry {
    JobRecord record;                               // spec is kept in the store only
    std::shared_ptr<const ir::JobRequest> request;  // null once terminal
    int64_t request_bytes = 0;                      // of its spec; 0 once terminal
    int plan_attempt = 0;
    bool trying = false;           // to place or plan it: record.tries counts it
    std::string sight;             // of the cluster when it was last tried to place it
    std::vector<RankPlace> ranks;  // reserved devices
    std::optional<MeshGeneration> mesh;
    int64_t progress_saved_ms = 0;
    bool end_told = false;            // although the store does not have it yet
    int64_t device_memory_bytes = 0;  // planned, as in PlannedJob
    int64_t device_budget_bytes = 0;
    double peak_flops_per_s = 0;
    std::map<std::string, int64_t> messages;
    ClientDesk desk;
    std::optional<int64_t> no_client_since_ms;  // it runs, and nobody came to drive it
    bool client_finished = false;               // before the mesh was active
  };
  struct MeshMember {
    std::string worker;
    SessionId session{0};
    std::vector<int> ranks;
    std::vector<int> local_devices;
    bool loaded = false;
    bool connected = false;
    bool saved = false;
    bool freed = false;      // confirmed, or gone
    std::string invitation;  // once loaded
  };
  struct OutstandingLaunch {
    LaunchSeq seq{0};
    PlannedLaunch launch;                                   // count 0: of the state
    std::optional<std::pair<SeatId, uint64_t>> ask;         // whom it answers; none: the driver's
    std::vector<std::optional<proto::LaunchDone>> answers;  // by member
  };
  struct Mesh {
    MeshGeneration gen;
    JobId job{0};
    MeshPhase phase = MeshPhase::kLoading;
    int64_t phase_since_ms = 0;
    PlannedJob plan;
    StateNames state;  // as the plan has it
    std::vector<MeshMember> members;
    std::unique_ptr<Driver> driver;
    std::deque<OutstandingLaunch> launches;
    uint64_t next_seq = 1;
    bool initialised = false;  // the driver's first launch, which fills the state, is issued
    bool ask_is_next = false;  // driver and clients take turns
    std::map<std::string, int64_t> call_steps;  // the next step of a program that clients call
    proto::RuntimeError cause;                  // while kAborting
    int errors = 0;
  };
  struct Context {
    Now now;
    Effects effects;
  };

  // core.cc
  void On(const SubmitJob& event, Context& context);
  void On(const CancelJob& event, Context& context);
  void On(const PlanFinished& event, Context& context);
  void On(const WriteFailed& event, Context& context);
  void On(const PlaceQueue&, Context&) {}  // as after every event, the queue is looked at
  void On(const Tick& event, Context& context);
  void On(const Shutdown& event, Context& context);
  void RestoreJob(RestoredJob restored, Context& context);
  void RestoreQueued(JobEntry& job, RestoredJob& restored, Context& context);
  void ScheduleQueue(Context& context);
  void BeginTry(JobEntry& job, Context& context);
  void EndTry(JobEntry& job, Context& context);
  void PersistTries(const JobEntry& job, Context& context);
  bool PlaceHead(JobEntry& job, Context& context);
  void TakeRequest(JobEntry& job, std::shared_ptr<const ir::JobRequest> request, size_t bytes);
  void DropRequest(JobEntry& job);
  void SetWaiting(JobEntry& job, const char* reason, std::string message, Context& context);
  void MoveJob(JobEntry& job, JobEvent event, Context& context);
  void EndJob(JobEntry& job, JobEvent event, const proto::RuntimeError& cause, Context& context);
  void AnnounceEnd(JobEntry& job, Context& context);
  void TellEnd(const JobEntry& job, Context& context) const;
  void PersistJob(JobEntry& job, bool required, const std::string& text, Context& context);
  void Unplace(JobEntry& job, const std::string& why, Context& context);
  void TrimJobs(Context& context);
  JobEntry* FindJob(JobId id);

  // core_workers.cc
  void On(const WorkerMessage& event, Context& context);
  void On(const SessionClosed& event, Context& context);
  void Admit(SessionId session, const proto::Register& info, Context& context);
  Status CheckAdmission(const proto::Register& info) const;
  void OnLeave(Worker& worker, const proto::Leave& leave, Context& context);
  void LoseWorker(Worker& worker, WorkerEvent event, const std::string& why, Context& context);
  void CheckLiveness(Context& context);
  void UnplaceUsersOf(const Worker& worker, const std::string& why, Context& context);
  ClusterView View() const;
  bool IsStable(const JobEntry& job, const Context& context) const;

  // core_mesh.cc
  void StartMesh(JobEntry& job, PlannedJob plan, Context& context);
  void TakeRanks(JobEntry& job, const PlannedJob& plan);
  std::vector<MeshMember> MakeMembers(const JobEntry& job) const;
  proto::LoadMesh MakeLoad(const JobEntry& job, const Mesh& mesh, const MeshMember& member) const;
  void OnMesh(Worker& worker, const proto::UpBody& body, Context& context);
  void OnMeshError(Mesh& mesh, const MeshMember& member, const proto::MeshError& m,
                   Context& context);
  void OnLoaded(Mesh& mesh, MeshMember& member, const proto::Loaded& m, Context& context);
  void OnCommUp(Mesh& mesh, MeshMember& member, const proto::CommUp& m, Context& context);
  void OnLaunchDone(Mesh& mesh, MeshMember& member, const proto::LaunchDone& m, Context& context);
  void OnSaved(Mesh& mesh, MeshMember& member, const proto::WeightsSaved& m, Context& context);
  void On(const WeightsFile& event, Context& context);
  void IssueLaunches(Mesh& mesh, Context& context);
  // kAborted where the driver says that the job cannot go on.
  Status FinishLaunch(Mesh& mesh, OutstandingLaunch& launch, Context& context);
  bool IssueOfDriver(Mesh& mesh, Context& context);
  Status TakeNews(JobEntry& job, DriverNews news, Context& context);
  void AllLaunched(Mesh& mesh, Context& context);
  void FinishMesh(Mesh& mesh, Context& context);
  void SendTo(const Mesh& mesh, const MeshMember& member, proto::DownBody body, Context& context);
  void SendToAll(const Mesh& mesh, const proto::DownBody& body, Context& context);
  void MoveMesh(Mesh& mesh, MeshEvent event, Context& context);

  // core_clients.cc
  void On(const AttachClient& event, Context& context);
  void On(const AskOfClient& event, Context& context);
  void On(const AckOfClient& event, Context& context);
  void On(const ClientGone& event, Context& context);
  void AttachToEnded(JobEntry& job, const AttachClient& event, Context& context);
  void TellOpened(JobEntry& job, ClientId client, Context& context) const;
  void OpenClients(JobEntry& job, Context& context);
  void CloseDriver(JobEntry& job, Context& context);
  void CheckClients(Context& context);
  bool IssueAsk(Mesh& mesh, Context& context);
  void SendAsk(Mesh& mesh, const JobEntry& job, proto::CallProgram& call, OutstandingLaunch& launch,
               Context& context);
  void SendAsk(Mesh& mesh, const JobEntry& job, proto::ReadState& read, OutstandingLaunch& launch,
               Context& context);
  void SendAsk(Mesh& mesh, const JobEntry& job, proto::WriteState& write, OutstandingLaunch& launch,
               Context& context);
  void AnswerAsk(JobEntry& job, OutstandingLaunch& launch, std::vector<proto::StepReport> merged,
                 Context& context);
  void CloseClients(JobEntry& job, const proto::RuntimeError& cause, Context& context);

  // core_failure.cc
  void FailMesh(Mesh& mesh, proto::RuntimeError error, Context& context);
  void MemberGone(Mesh& mesh, MeshMember& member, const proto::RuntimeError& why, Context& context);
  void MemberFreed(Mesh& mesh, MeshMember& member, Context& context);
  void CheckAborting(Mesh& mesh, Context& context);
  void CheckMeshes(Context& context);
  void CheckPhaseDeadline(Mesh& mesh, Context& context);
  void LoseDeafMembers(const Mesh& mesh, Context& context);
  std::vector<uint64_t> Generations() const;
  void ConcludeAbort(Mesh& mesh, Context& context);

  // core_actors.cc
  static ActorTableOptions ActorOptions(const CoreOptions& options);
  void On(const SpawnActorCall& event, Context& context);
  void On(const AskActorCall& event, Context& context);
  void On(const StopActorCall& event, Context& context);
  void On(const WatchActorCall& event, Context& context);
  void On(const UnwatchActor& event, Context& context);
  // False: the message is not of an actor.
  bool OnActor(const Worker& worker, const proto::UpBody& body, Context& context);
  ActorWorkers ReadyActorWorkers() const;
  void Carry(ActorEffects effects, Context& context);

  std::set<std::string> BlobsOf(const JobEntry& job) const;
  proto::JobInfo InfoOf(const JobEntry& job) const;
  void CountMessage(JobId job, const char* kind);
  Status CheckJobs() const;
  Status CheckMeshTable() const;
  Status CheckDevices() const;

  CoreOptions options_;
  uint64_t next_mesh_gen_ = 1;
  int64_t next_job_id_ = 1;
  int64_t request_bytes_ = 0;  // of all jobs
  std::vector<RestoredJob> restored_;
  std::map<int64_t, JobEntry> jobs_;
  std::map<std::string, int64_t> job_of_op_;
  std::deque<int64_t> queue_;       // QUEUED jobs in the order they came: by id
  std::set<int64_t> unsaved_ends_;  // ended jobs whose end is not on disk yet
  Membership members_;
  std::map<uint64_t, int64_t> job_of_client_;
  std::map<uint64_t, Mesh> meshes_;  // by generation, until freed
  ActorTable actors_;
  std::map<std::string, int64_t> message_totals_;
  int64_t stale_messages_ = 0;
  int64_t last_tick_ms_ = -1;
  bool stopping_ = false;
};

}  // namespace meshwright::controller
