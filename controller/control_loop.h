// The shell of the control core: one thread that feeds it events and carries out its effects.
//
// Everything here posts to that thread; nothing blocks the caller. Durable writes happen on the
// loop before the effects that depend on them; planning, files of jobs and progress writes have
// threads of their own.
//
// Thread rule: thread-safe. A callback is called exactly once, on the loop, or on the caller when
// the loop has stopped; it must not block. Ownership: store, blobs, sink and metrics outlive the
// loop.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "controller/ahead_planner.h"
#include "controller/blob_store.h"
#include "controller/checkpoint_store.h"
#include "controller/core.h"
#include "controller/journal.h"
#include "controller/metrics.h"
#include "controller/planning.h"
#include "controller/run_story.h"
#include "controller/state_dir.h"
#include "controller/store.h"
#include "controller/weights_sink.h"
#include "proto/job_description.h"

namespace meshwright::controller {

// The far end of a worker session. Called on the loop; must not block. After Close nothing more is
// called.
class SessionPeer {
 public:
  virtual ~SessionPeer() = default;
  virtual void Send(proto::DownMessage message) = 0;
  virtual void Close(Status reason) = 0;
};

// The far end of a client's session. Called on the loop; must not block. After Close or Break
// nothing more is called.
class ClientPeer {
 public:
  virtual ~ClientPeer() = default;
  virtual void Tell(proto::ClientDown news) = 0;
  // The session is over: its client does not come back.
  virtual void Close(Status reason) = 0;
  // Only the stream ends: the client comes back, to this controller or to the next one.
  virtual void Break(Status reason) = 0;
};

// By which a session's client comes back to it; see proto::SessionOpen.
struct SessionName {
  std::string name;
  bool again = false;
};

// How much of a job its watcher has seen.
struct WatchCursor {
  int64_t job = 0;
  int64_t steps = 0;
  int64_t lines = 0;
  int64_t version = -1;  // of the job's info; -1: nothing seen
};

struct ControlParts {
  Store* store = nullptr;
  BlobStore* blobs = nullptr;
  WeightsSink* weights = nullptr;
  ControllerMetrics* metrics = nullptr;
  const StateDir* dir = nullptr;
  CheckpointStore* checkpoints = nullptr;
  PlanFunction make_plan;
  std::function<Journal(const std::string& job_dir, const JournalSizes&)> load_journal =
      LoadJournal;
  PlanListener on_plan = nullptr;
  RunStory* story = nullptr;  // null: nobody wants to know what happened in steps
};

class ControlLoop {
 public:
  ControlLoop(CoreOptions options, ControlParts parts);
  ~ControlLoop();

  // Restores the jobs and begins to tick.
  void Start();
  // Running jobs that nobody can take up end as "ControllerStopped", sessions close, watchers get
  // their last update. Then no call does anything.
  void Stop();

  SessionId OpenSession(std::shared_ptr<SessionPeer> peer);
  void FromWorker(SessionId session, proto::UpMessage message);
  void SessionEnded(SessionId session, std::string why);

  // A client's session, which is told what comes of it until it ends.
  ClientId OpenClient(std::shared_ptr<ClientPeer> peer);
  void Attach(ClientId client, int64_t job, SessionName name);
  void Acknowledge(ClientId client, std::vector<uint64_t> ids);
  void FromClient(ClientId client, proto::SessionAsk ask);
  void ClientEnded(ClientId client, ClientEnd how);

  template <typename T>
  using Callback = std::function<void(Result<T>)>;

  void Submit(Submission what, Callback<int64_t> done);
  // Feeds the call that `make` builds, one that is answered by a status: CancelJob, PauseJob,
  // ResumeJob, OrderWorker.
  void Order(std::function<Event(CallId)> make, std::function<void(Status)> done);
  void Get(int64_t job, Callback<proto::JobInfo> done);
  // What was asked, and the weights that it left. Errors: kNotFound: there is no such job, or it
  // was never planned.
  void Describe(int64_t job, Callback<proto::JobDescription> done);
  void List(Callback<std::vector<proto::JobInfo>> done);
  void Workers(Callback<std::vector<proto::WorkerInfo>> done);

  // Host actors (controller/actor_table.h says what may go wrong). worker: "" for any.
  void SpawnActor(JobId job, std::string type, std::string args, std::string worker,
                  Callback<proto::ActorRef> done);
  void AskActor(proto::ActorRef ref, std::string payload, int64_t deadline_ms,
                Callback<std::string> done);
  // done: once its mailbox has it.
  void TellActor(proto::ActorRef ref, std::string payload, int64_t deadline_ms,
                 std::function<void(Status)> done);
  void StopActor(proto::ActorRef ref, std::function<void(Status)> done);
  // Called at every restart, with the ref of the new life and what ended the one before, and for
  // the last time with the end.
  using ActorWatcher = std::function<void(const ActorAnswer&)>;
  CallId WatchActor(proto::ActorRef ref, ActorWatcher watcher);
  void UnwatchActor(CallId watch);

  // What there is to see of the core; LookAt() is the way to call it. Null: the loop has stopped.
  void Look(std::function<void(const Core*)> look);

  // Answers once there is something behind the cursor, and at once when there is already. The
  // answer's cursor is where to go on.
  struct News {
    proto::JobUpdate update;
    WatchCursor cursor;
    bool caught_up = false;  // nothing more to tell right now
    bool last = false;       // and there never will be: the job has ended
  };
  using WatchId = uint64_t;
  WatchId NewWatchId() { return next_watch_.fetch_add(1); }
  void Watch(WatchId id, WatchCursor cursor, Callback<News> done);
  // The callback is called with kCancelled unless it was called before.
  void Unwatch(WatchId id);

  const CoreOptions& options() const { return core_.options(); }

 private:
  struct Waiter {
    WatchId id = 0;
    WatchCursor cursor;
    Callback<News> done;
  };
  struct JobView {
    Journal journal;
    int64_t version = 0;
    bool loading = false;  // `journal` holds only what came since; the rest is being read
  };

  // Feeds the call that `make` builds, and keeps who waits for it.
  void PostActorCall(CallId call, ActorWatcher done, std::function<Event(CallId)> make);
  static Core MakeCore(CoreOptions options, const StoredState& stored, const StateDir& dir);
  Now now() const;
  void StepOnLoop(const Event& event);
  void ExecuteOnLoop(Effects effects);
  void TickOnLoop();
  void FlushOnLoop();
  void AddSessionOnLoop(SessionId session, std::shared_ptr<SessionPeer> peer);
  void CloseIdleOnLoop();
  void CollectBlobsOnLoop();

  // Effects that are more than one line.
  Status Do(Persist& effect);
  void Do(StartPlan& effect);
  void Do(OpenWeights& effect);
  void Do(FinishWeights& effect);
  void Do(CommitHere& effect);
  void Do(const CheckBlobs& effect);
  void Do(StepsDone& effect);
  void Do(LogLine& effect);
  void Do(JobChanged& effect);
  void Do(TellClient& effect);
  void Do(CloseClient& effect);
  void Do(const ActorAnswer& answer);
  void EndActorCallsOnLoop();
  void ExecuteOne(Effect& effect);

  void AppendToJob(JobId job, const char* file, std::string text);
  JobView& ViewOnLoop(int64_t job);
  void LoadedOnLoop(int64_t job, Journal history);
  void RetireViewOnLoop(int64_t job);
  void RemovePartsOnLoop();
  void ForgetJobOnLoop(int64_t job);
  // False: nothing new.
  bool AnswerOnLoop(Waiter& waiter);
  void NotifyOnLoop(int64_t job);

  ControlParts parts_;
  Core core_;
  // State of the loop.
  std::map<uint64_t, std::shared_ptr<SessionPeer>> sessions_;
  std::map<uint64_t, int64_t> pending_;  // sessions that have not registered: since when, in ms
  std::map<uint64_t, std::shared_ptr<ClientPeer>> clients_;
  std::map<uint64_t, std::function<void(Status, JobId)>> calls_;
  std::map<uint64_t, ActorWatcher> actor_calls_;
  std::map<int64_t, JobView> views_;
  int64_t newest_job_ = 0;                  // jobs up to this one may have a history on disk
  std::list<int64_t> ended_views_;          // oldest first
  std::multimap<int64_t, Waiter> waiters_;  // by job
  std::set<int64_t> touched_;
  bool stopped_ = false;
  std::atomic<uint64_t> next_call_{1};
  std::atomic<uint64_t> next_session_{1};
  std::atomic<uint64_t> next_client_{1};
  std::atomic<uint64_t> next_watch_{1};
  std::atomic<bool> stopping_{false};
  // Threads, last: the loop stops first.
  Executor history_{"mw-history"};
  Executor planner_{"mw-planner"};
  AheadPlanner ahead_;
  Executor files_{"mw-files"};
  Executor checkpoints_{"mw-checkpoints"};
  // Appends to files of jobs. What is on record of a job is never ahead of its journal.
  Executor journal_{"mw-journal"};
  Executor loop_{"mw-core"};
};

// `done` is told what `see` makes of the core. Errors: those of `see`; kUnavailable.
template <typename T, typename See>
void LookAt(ControlLoop& loop, See see, ControlLoop::Callback<T> done) {
  loop.Look([see, done](const Core* core) {
    if (core == nullptr) return done(Fail(Unavailable("the controller is stopping")));
    done(see(*core));
  });
}

struct Summary {
  std::string cluster_id;
  uint64_t term = 0;
  std::map<std::string, int64_t> jobs, workers;
};
inline Result<Summary> Summarise(const Core& core) {
  return Summary{core.options().cluster_id, core.options().term.value(), core.JobCounts(),
                 core.WorkerCounts()};
}

}  // namespace meshwright::controller
