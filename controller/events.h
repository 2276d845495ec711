// What happens to the control core and what it wants done: the only two vocabularies of
// controller/core.h.
//
// The shell feeds events one at a time and carries out the effects of each, in order, before the
// next event. Thread rule: values.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "checkpoint/assign.h"
#include "controller/actor_events.h"
#include "controller/client_desk.h"
#include "controller/ids.h"
#include "controller/record_events.h"
#include "controller/step_lists.h"
#include "controller/store.h"
#include "ir/job.h"
#include "mesh/topology.h"
#include "proto/messages.h"

namespace meshwright::controller {

// Rows of a batch.
struct RowRange {
  int64_t first = 0;
  int64_t count = 0;
  friend bool operator==(const RowRange&, const RowRange&) = default;
};

// The planner's answer as far as the core needs it. Programs are in the blob store by now.
struct PlannedDevice {
  std::vector<ir::BlobRef> programs;     // in the order of PlannedJob.programs
  std::vector<std::string> saved_slots;  // weights whose tile this device writes at the end
  std::vector<std::string> state_slots;  // and all tensors of the state, for who reads them
  // Of what a client brings, by program and input: the rows that this device reads. No entry: all.
  std::map<std::pair<uint32_t, uint32_t>, RowRange> input_rows = {};
};
struct PlannedJob {
  std::string layout;
  ir::ParallelSpec degrees = {};       // of the layout; data 0: not known
  std::vector<std::string> programs;   // names; on the wire they are indices
  std::vector<std::string> notes;      // what the planner wants the user to know
  std::vector<PlannedDevice> devices;  // by rank; may be fewer than were reserved
  std::vector<int> placement;          // per rank, which of those; empty: the first ones in order
  std::shared_ptr<const StepLists> lists = {};   // of its programs, for diagnoses; null: not known
  ir::BlobRef graph;                             // text of the main program's graph
  std::vector<checkpoint::StateBox> boxes = {};  // of the state, and the ranks that hold them
  int64_t vocabulary = 0;
  double seconds = 0;
  int64_t device_memory_bytes = 0;  // of the fullest device, and what that device has
  int64_t device_budget_bytes = 0;
  double peak_flops_per_s = 0;  // of its devices together; 0: not all of them are known
};

// REQUIRES that the plan has the program: drivers launch what the job has.
uint32_t ProgramIndex(const PlannedJob& plan, const std::string& name);

// ---- Events -------------------------------------------------------------------------------------

struct WorkerMessage {
  SessionId session;
  proto::UpMessage message;
};
struct SessionClosed {
  SessionId session;
  std::string why;  // "closed by the peer", "protocol error: ..."
};
// What a client wants to become a job.
struct Submission {
  std::string op_id;
  ir::JobRequest job;
  std::string tool = {};  // the command whose session the job is; empty: none
};
struct SubmitJob {
  CallId call;
  std::string op_id;
  std::shared_ptr<const ir::JobRequest> request;  // valid (ir::ValidateJob)
  std::string spec;                               // the same, as bytes
  std::string tool = {};  // the command whose session the job is; empty: none
};
struct CancelJob {
  CallId call;
  JobId job;
};
// Its state is saved, and its devices are free, until somebody resumes it.
struct PauseJob {
  CallId call;
  JobId job;
};
struct ResumeJob {
  CallId call;
  JobId job;
};
// Its state is saved as soon as it may be, and it goes on.
struct SaveJob {
  CallId call;
  JobId job;
};
// Of a worker that is listed, or was. deadline_ms: of a drain, from now.
struct OrderWorker {
  CallId call;
  std::string worker;
  proto::WorkerOrder order = proto::WorkerOrder::kUnspecified;
  int64_t deadline_ms = 0;
};
struct PlanFinished {
  JobId job;
  int attempt = 0;
  Result<PlannedJob> plan;
  bool misfit = false;  // no plan, since a sound job does not fit the devices
};
// What came of MakePlanAhead, for so many devices.
struct PlannedAhead {
  JobId job;
  int64_t epoch = 0;
  std::string loss;
  size_t devices = 0;
  Result<PlannedJob> plan;
};
// The weights file is open (opened = true) or complete, or could not be.
struct WeightsFile {
  MeshGeneration mesh_gen;
  bool complete = false;
  Status status;
};
// What CommitHere came to.
struct CommittedHere {
  proto::CheckpointCommitted committed;
};
// A required write did not reach the store; the job's later effects of that step were dropped.
struct WriteFailed {
  JobId job;
  CallId call;  // 0: none
  Status status;
};
// A client wants to drive, or to ask, this job. session: a name, to come back to. again: it does.
struct AttachClient {
  ClientId client;
  JobId job;
  std::string session;
  bool again = false;
};
struct AskOfClient {
  ClientId client;
  uint64_t id = 0;
  proto::ClientAsk ask;
  std::vector<uint64_t> acked;  // asks whose answers have come
};
struct AckOfClient {
  ClientId client;
  std::vector<uint64_t> ids;
};
// It is lost, it has closed its session, or it said that the job ends with it.
enum class ClientEnd : uint8_t { kLost, kClosed, kEndsJob };
struct ClientGone {
  ClientId client;
  ClientEnd how = ClientEnd::kLost;
};
// The effects of a step with PlaceNext are carried out.
struct PlaceQueue {};
struct Tick {};
struct Shutdown {};

using Event = std::variant<WorkerMessage, SessionClosed, SubmitJob, CancelJob, PlanFinished,
                           WeightsFile, CommittedHere, WriteFailed, AttachClient, AskOfClient,
                           AckOfClient, ClientGone, PlaceQueue, Tick, Shutdown, SpawnActorCall,
                           AskActorCall, StopActorCall, WatchActorCall, UnwatchActor, PauseJob,
                           ResumeJob, SaveJob, OrderWorker, PlannedAhead, RecordSteps>;

// ---- Effects ------------------------------------------------------------------------------------

struct Send {
  JobId job;  // 0: none
  SessionId session;
  proto::DownMessage message;
};
struct CloseSession {
  SessionId session;
  Status reason;
};
// Durable before any later effect. required: when it fails, drop the job's later effects of this
// step and report WriteFailed; else log and go on.
struct Persist {
  JobId job;
  bool required = false;
  CallId call;  // who waits for it; 0: nobody
  StoreBatch batch;
};
struct SaveProgress {
  JobId job;
  int64_t steps_done = 0;
  double loss = 0;
};
// Wants PlaceQueue before any other event, once the effects of this step are carried out: that a
// job is about to be placed is on disk by then.
struct PlaceNext {};
struct StartPlan {
  JobId job;
  int attempt = 0;
  std::shared_ptr<const ir::JobRequest> request;
  mesh::Topology topology;
};
// A plan that may be needed later (controller/core_ahead.h): what is planned for now goes first.
struct MakePlanAhead {
  JobId job;
  int64_t epoch = 0;
  std::string loss;
  std::shared_ptr<const ir::JobRequest> request;
  mesh::Topology topology;
};
struct OpenWeights {
  JobId job;
  MeshGeneration mesh_gen;
  std::shared_ptr<const ir::JobRequest> request;
};
struct FinishWeights {
  JobId job;
  MeshGeneration mesh_gen;
};
// A checkpoint whose files lie with the controller is whole: wants CommittedHere.
struct CommitHere {
  JobId job;
  proto::CommitCheckpoint commit;
};
// A worker got other bytes than the names of these blobs say: they are read again.
struct CheckBlobs {
  JobId job;
  std::vector<std::string> sha256s;
};
struct DiscardWeights {
  JobId job;
  MeshGeneration mesh_gen;
};
struct Reply {
  CallId call;
  JobId job;
  Status status;
};
struct TellClient {
  ClientId client;
  proto::ClientDown news;
};
// Nothing more is told. reason: OK: the job has ended well.
struct CloseClient {
  ClientId client;
  Status reason;
};
struct StepsDone {
  JobId job;
  std::vector<proto::StepMetrics> steps;
};
struct LogLine {
  JobId job;
  std::string line;
};
struct JobChanged {
  JobId job;
};
// For the metrics of the job: whether it stands still, and ranks that are slow, by how much; 0: no
// longer.
struct HealthChanged {
  JobId job;
  bool stalled = false;
  std::map<int, double> slow_ranks;
};
// For its metrics: one more of these.
enum class JobCount : uint8_t { kCheckpoint, kFailedCheckpoint, kRecovery };
struct JobCounted {
  JobId job;
  JobCount what = JobCount::kCheckpoint;
};

using Effect =
    std::variant<Send, CloseSession, Persist, SaveProgress, PlaceNext, StartPlan, OpenWeights,
                 FinishWeights, CommitHere, CheckBlobs, DiscardWeights, Reply, TellClient,
                 CloseClient, StepsDone, LogLine, JobChanged, HealthChanged, JobCounted,
                 ActorAnswer, MakePlanAhead, StepsRecorded, RunBegins>;
using Effects = std::vector<Effect>;

// The job that an effect belongs to; 0: none.
JobId JobOf(const Effect& effect);

// Both clocks of one instant: intervals by the first, history by the second.
struct Now {
  int64_t ms = 0;  // monotonic
  int64_t unix_ms = 0;
};

}  // namespace meshwright::controller
