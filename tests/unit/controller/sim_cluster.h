// A whole cluster around a real controller core, without threads, files or time of its own:
// workers, planner, weights file and store are played by this class, messages wait in queues (in
// order per session) and are delivered in an order drawn from a seed. After every step the core's
// invariants and the promises listed in sim_cluster.cc are checked.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/philox.h"
#include "controller/core.h"
#include "controller/store.h"
#include "tests/unit/controller/sim_states.h"
#include "worker/mesh_log.h"

namespace meshwright::controller {

struct SimWorker {
  std::string name;
  uint64_t incarnation = 0;
  int devices = 1;
  std::string host = "host-a";
  std::string profile;  // of its devices, as text
  std::vector<int32_t> cpus = {};
  std::string kind = {};  // of its devices
  std::vector<std::string> actor_types = {"env"};
  // Its host actors that live: generation and job, by id.
  std::map<uint64_t, std::pair<uint64_t, JobId>> actors = {};
  SessionId session{0};  // 0: not connected
  Term term{0};
  bool welcomed = false;                                  // in its session
  bool silent = false;                                    // alive, but nothing it sends arrives
  std::set<uint64_t> meshes;                              // generations that it holds
  std::set<uint64_t> failed = {};                         // of them, those that do no work any more
  std::map<uint64_t, uint64_t> last_seq;                  // by generation
  std::map<uint64_t, std::vector<std::string>> programs;  // by generation
  std::map<uint64_t, std::set<std::string>> invitations;  // that it expects, by generation
  std::vector<double> executed;                           // calls, by what they brought
  std::vector<proto::LaunchInput> last_inputs;
  bool drained = false;                           // it was told so
  std::deque<proto::UpBody> writes = {};          // of checkpoints, in the order in which they end
  std::map<uint64_t, worker::MeshLog> logs = {};  // of its meshes, by generation
};

class SimCluster {
 public:
  explicit SimCluster(CoreOptions options = DefaultOptions(), uint64_t seed = 1);

  static CoreOptions DefaultOptions();
  static ir::JobRequest MakeJob(int64_t data, int64_t tensor, int64_t pipeline, int64_t steps);

  // ---- what happens ----
  void AddWorker(const std::string& name, int devices, const std::string& host = "host-a");
  void AddWorkers(int count, int devices = 1);  // w0, w1, ...; settled
  // What a new session that registers like this is told when it is closed; OK when it stays.
  Status Refusal(const proto::Register& info);
  // What it measured goes with its next registration.
  void SetCpus(const std::string& name, std::vector<int32_t> cpus) {
    workers_.at(name).cpus = std::move(cpus);
  }
  void SetKind(const std::string& name, std::string kind) {
    workers_.at(name).kind = std::move(kind);
  }
  void SetProfile(const std::string& name, std::string text) {
    workers_.at(name).profile = std::move(text);
  }
  void Kill(const std::string& name);     // its session ends
  void Crash(const std::string& name);    // the same, and what it said last is lost
  void Silence(const std::string& name);  // nothing from it arrives any more
  void Leave(const std::string& name, int64_t drain_ms = 0);
  Status Order(const std::string& name, proto::WorkerOrder order, int64_t deadline_ms = 0);
  void KillActors(const std::string& name);  // the processes that its actors live in
  void Reconnect(const std::string& name);   // a new session of the same process
  int64_t Submit(const ir::JobRequest& job, const std::string& op_id = "");
  Status Cancel(int64_t job);
  Status Pause(int64_t job);
  Status Resume(int64_t job);
  Status Save(int64_t job);
  void Advance(int64_t ms);  // time passes, in ticks of 100 ms with heartbeats
  void Stall(int64_t ms);    // time passes, the controller does not get to run
  void RestartController();  // kill -9: what the store has is what remains
  // Workers share a folder for checkpoints; else these lie with the controller.
  bool shared_root = true;
  int64_t commits_here = 0;          // of the controller
  proto::RuntimeError commit_error;  // that its next one fails with
  // Workers hold what they run while they have no session, as real ones do.
  bool workers_hold = false;
  // The connection breaks; the worker comes back in a new session.
  void Flap(const std::string& name);
  int64_t resumes = 0;  // meshes that went on in another session

  // ---- clients of jobs ----
  uint64_t OpenClient(int64_t job, const std::string& session = "", bool again = false);
  void Ask(uint64_t client, proto::ClientAsk ask);
  void EndClient(uint64_t client, ClientEnd how);
  bool opened(uint64_t client) const { return opened_clients_.contains(client); }
  std::optional<Status> closed(uint64_t client) const {
    const auto it = closed_clients_.find(client);
    return it == closed_clients_.end() ? std::nullopt : std::optional(it->second);
  }
  const std::vector<proto::AskDone>& answers(uint64_t client) { return answers_[client]; }
  const std::vector<proto::RuntimeError>& failures(uint64_t client) { return failures_[client]; }
  size_t unanswered(uint64_t client) { return asked_[client].size(); }

  // Where a test has clients of its own: they get what streams are told instead.
  std::function<void(const TellClient&)> on_tell;
  std::function<void(const CloseClient&)> on_close;

  // ---- delivery ----
  bool DeliverOne();              // false: nothing is under way
  void Settle();                  // until nothing is under way
  void SettleFor(int64_t ms);     // settle, then let time pass, settling
  void Feed(const Event& event);  // an event of the test's own making
  // A message from a worker as it would arrive, bypassing its queue.
  void FeedFrom(const std::string& worker, proto::UpBody body);

  // ---- what is seen ----
  proto::JobInfo Info(int64_t job) const;
  const Core& core() const { return *core_; }
  Now now() const { return Now{now_ms_, 1'700'000'000'000 + now_ms_}; }
  int64_t core_ns() const { return core_ns_; }  // real time that starts and steps of the core took
  MemoryDisk& disk() { return *disk_; }
  const std::vector<proto::StepMetrics>& steps(int64_t job) { return steps_[job]; }
  const std::vector<std::string>& lines(int64_t job) { return lines_[job]; }
  const SimWorker& worker(const std::string& name) const { return workers_.at(name); }
  const SimStates& states() const { return states_; }
  JobRecord Record(int64_t job) const;                                       // as it is on disk
  const std::map<std::string, Status>& refused() const { return refused_; }  // by worker
  const mesh::Topology& planned() const { return planned_; }  // what the last plan was asked for
  int64_t Draw(int64_t below);

  // What workers say beside their results: where their devices are, and how busy one was in a step.
  std::function<proto::Heartbeat(const SimWorker&)> heartbeat;
  std::map<std::string, proto::RankSeconds> busy;  // by worker

  // ---- faults of the played parts ----
  std::vector<std::string> plan_notes;
  std::optional<Status> plan_error;
  bool plan_misfit = false;  // with plan_error: it is the planner's own
  std::optional<Status> weights_error;
  int64_t diverges_at = -1;                // the loss of this step and later is NaN
  int planned_devices = 0;                 // 0: as many as were reserved
  std::vector<int> planned_placement;      // as in PlannedJob
  std::vector<std::string> planned_state;  // of the first device
  std::vector<std::map<std::pair<uint32_t, uint32_t>, RowRange>> planned_rows;  // by device
  int plans = 0;                             // that were asked for, but for those ahead
  std::vector<MakePlanAhead> planned_ahead;  // in the order in which they were asked for
  std::string planned_graph;                 // digest of its blob
  size_t plans_from = 0;                     // devices: with fewer there is no plan
  bool hold_plans = false;                   // plans wait until released
  std::vector<std::string> checked_blobs;    // that were to be read again
  bool dies_placing = false;                 // the controller does not come to placing: restart it
  std::optional<proto::LoadMesh> last_load;  // that a worker got
  int invitation_bytes = 0;                  // of every worker; 0: its name
  bool hold_actors = false;                  // actors do not answer
  std::vector<ActorAnswer> actor_answers;    // in order
  std::vector<proto::StopActor> stopped_actors;  // that workers were told of
  bool hold_reports = false;                     // workers run, their LaunchDone waits
  std::vector<RunBegins> begun;
  int64_t hold_from = -1;                                 // they hang in this step
  bool hold_writes = false;                               // of checkpoints
  double snapshot_seconds = 0.001;                        // a step takes half a second
  std::set<std::string> no_memory;                        // workers that can take no snapshot
  std::set<std::string> no_copies;                        // and none of another one's
  bool hold_copies = false;                               // nobody says that it has one
  bool deaf_aborts = false;                               // workers do not answer AbortMesh
  std::map<std::string, proto::RuntimeError> fail_next;   // by worker: its next report
  std::map<std::string, proto::RuntimeError> fail_write;  // by worker: its next of a checkpoint

 private:
  Result<PlannedJob> MakePlan(const ir::JobRequest& request, size_t devices) const;
  void Plan(const StartPlan& start);
  void Plan(const MakePlanAhead& ahead);
  void Carry(Send& send);
  void Execute(Effects effects);
  void Run(const Event& event);
  std::string InvitationOf(const SimWorker& worker) const;
  void Handle(SimWorker& worker, const proto::DownMessage& message);
  void OnActor(SimWorker& worker, const proto::SpawnActor& spawn);
  void OnActor(SimWorker& worker, const proto::ActorMessage& message);
  void OnActor(SimWorker& worker, const proto::StopActor& stop);
  void HandleLaunch(SimWorker& worker, const proto::Launch& launch);
  bool Expects(SimWorker& worker, MeshGeneration gen, LaunchSeq seq);
  void OnState(SimWorker& worker, const proto::SaveState& save);
  void OnState(SimWorker& worker, const proto::RestoreState& restore);
  void OnState(SimWorker& worker, const proto::CommitCheckpoint& commit);
  void OnState(SimWorker& worker, const proto::QuerySnapshots& query);
  void OnState(SimWorker& worker, const proto::DropSnapshots& drop);
  void OnState(SimWorker& worker, const proto::CopySnapshot& copy);
  proto::SnapshotTaken TakeSnapshot(SimWorker& worker, const proto::Launch& launch);
  std::optional<int64_t> RecordedStart(MeshGeneration gen);
  void EndWrite(SimWorker& worker);
  void HearSteps(const StepsDone& done);
  void FlushJournal(int64_t job) { journal_[job] = steps_[job].size(); }
  int64_t ReadJournal(int64_t job);
  void AnswerState(SimWorker& worker, MeshGeneration gen, LaunchSeq seq);
  void Hear(const TellClient& tell);
  void Say(SimWorker& worker, proto::UpBody body);
  void CheckPromises();
  SimWorker* BySession(SessionId session);
  template <typename Call>
  Status Answer(Call call);
  void Part(SimWorker& worker);
  void OnWelcome(SimWorker& worker, const proto::DownMessage& message);
  void Drop(SimWorker& worker, uint64_t gen);
  void CheckLaunch(const proto::DownBody& told);

  CoreOptions options_;
  uint64_t seed_;
  uint64_t draws_ = 0;
  int64_t now_ms_ = 0;
  uint64_t next_session_ = 1;
  uint64_t next_incarnation_ = 100;
  uint64_t next_call_ = 1;
  int64_t core_ns_ = 0;
  std::shared_ptr<MemoryDisk> disk_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Core> core_;
  std::map<std::string, SimWorker> workers_;
  std::map<uint64_t, std::deque<proto::UpMessage>> up_;      // by session
  std::map<uint64_t, std::deque<proto::DownMessage>> down_;  // by session
  mesh::Topology planned_;
  std::set<uint64_t> closing_;  // ends once its queue is empty
  std::deque<Event> pending_;   // planner and weights file
  std::deque<Event> held_plans_;
  std::map<uint64_t, Reply> replies_;
  std::map<int64_t, std::shared_ptr<const ir::JobRequest>> requests_;
  std::map<int64_t, proto::JobInfo> ended_;
  std::map<int64_t, std::vector<proto::StepMetrics>> steps_;
  std::map<int64_t, size_t> journal_;  // steps that are on disk for certain
  std::map<int64_t, std::vector<std::string>> lines_;
  std::map<std::string, Status> refused_;
  uint64_t next_client_ = 1;
  uint64_t next_ask_ = 1;
  std::set<uint64_t> opened_clients_, gone_clients_;
  std::map<uint64_t, Status> closed_clients_;
  std::map<uint64_t, std::set<uint64_t>> asked_;  // by client: unanswered
  std::map<uint64_t, uint64_t> last_done_;
  std::map<uint64_t, std::vector<proto::AskDone>> answers_;
  std::map<uint64_t, std::vector<proto::RuntimeError>> failures_;
  std::set<uint64_t> told_gens_;
  std::map<std::pair<uint64_t, uint64_t>, std::string> launches_;  // by generation and number
  std::map<uint64_t, int64_t> gen_job_;
  SimStates states_;
};

// The same job, which ends when a run of it fails.
ir::JobRequest WithoutRecovery(ir::JobRequest job);

}  // namespace meshwright::controller
