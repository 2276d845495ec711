// MeshLife: one generation of a mesh, from the first order to the last member that lets go.
//
//   LOADING --all loaded--> CONNECTING --all connected--> ACTIVE --(SAVING)--> RELEASING
//                     RESUMING --all back--------------> ACTIVE
//   and from each of them, by the first error: ABORTING --settled--> RELEASING
//
// A value with a step of its own: what happens goes in, what is to be done comes out, in order. It
// knows its members and what they were told; of jobs, queues and clients it knows nothing. Which
// phase follows which is the table in controller/states.h.
//
// Failure: the first error aborts every member at once. The cause is elected while they let go
// (controller/cause_election.h), and the mesh has failed when it is settled and everyone has let
// go, or time is up. Devices are free when their worker has confirmed, or is gone.
//
// Thread rule: the core's thread. Sans-I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "controller/mesh_state.h"
#include "controller/mesh_work.h"

namespace meshwright::controller {

// ---- What happens -------------------------------------------------------------------------------

struct MeshBegin {};  // first of all
// REQUIRES that a member has the session (MeshState::Hears).
struct MeshReport {
  SessionId session;
  proto::UpBody body;
};
// A worker's session is over. Nothing, where it is no member's.
struct MeshMemberLost {
  SessionId session;
  proto::RuntimeError why;
};
// The same of one that did not come back to this controller.
struct MeshMemberMissing {
  std::string worker;
  proto::RuntimeError why;
};
// A member's session broke, and may come back. REQUIRES that the mesh is active.
struct MeshMemberAway {
  SessionId session;
};
// A worker that was away, or that an earlier controller had, has a session; what it holds it says
// next.
struct MeshMemberBack {
  std::string worker;
  SessionId session;
};
struct MeshFault {
  proto::RuntimeError cause;
};
// REQUIRES room (MeshState::HasRoom).
struct MeshLaunch {
  MeshWork work;
  int64_t unix_ms = 0;  // of now, for people
};
// It has run all that it was to run. REQUIRES that it is active and nothing is under way.
struct MeshClose {
  bool save_weights = false;
};
struct MeshWeightsFile {  // WeightsFile of controller/events.h
  bool complete = false;
  Status status;
};
// A checkpoint whose files lie with the controller.
struct MeshCommitted {
  proto::CheckpointCommitted committed;
};
struct MeshTick {};
// Nobody is left to wait for better causes.
struct MeshEndElection {};

using MeshInput = std::variant<MeshBegin, MeshReport, MeshMemberLost, MeshMemberMissing,
                               MeshMemberAway, MeshMemberBack, MeshFault, MeshLaunch, MeshClose,
                               MeshWeightsFile, MeshCommitted, MeshTick, MeshEndElection>;

// ---- What is to be done -------------------------------------------------------------------------

struct MeshSend {
  SessionId session;
  proto::DownBody body;
};
struct MeshActivated {};  // it waits for work
// The same of one that an earlier controller had; what becomes of the launches comes behind this.
struct MeshTakenUp {
  std::vector<ResumedLaunch> launches;
  bool from_first = false;  // none came before them
};
struct MeshLaunched {
  LaunchResult result;
};
struct MeshWantsWork {};  // there is room again
// A worker got other bytes than a blob's name says.
struct MeshDataLost {};
// Its first error: what is under way is abandoned.
struct MeshAborts {};
enum class WeightsStep : uint8_t { kOpen, kFinish, kSaved, kDiscard };
struct MeshWeights {  // what becomes of the file that its weights are written to
  WeightsStep step;
};
// A save has come to its end: there is a checkpoint of this step, or there is none, and why.
struct MeshSaved {
  int64_t step = 0;
  Status status;
  SaveSeconds seconds = {};
};
// It lies with the controller, which commits it itself.
struct MeshCommit {
  proto::CommitCheckpoint commit;
};
struct MeshDevicesFreed {
  std::string worker;
  std::vector<int> devices;
};

using MeshEffect =
    std::variant<MeshSend, MeshActivated, MeshTakenUp, MeshLaunched, MeshWantsWork, MeshDataLost,
                 MeshAborts, MeshWeights, MeshSaved, MeshCommit, MeshDevicesFreed>;

// A member does not let go: its worker counts as lost.
struct DeafMember {
  SessionId session;
  std::string why;
};

// What has become of it in this step, behind all effects.
enum class MeshOutcome : uint8_t { kGoesOn, kFinished, kFailed };

struct MeshStep {
  std::vector<MeshEffect> effects;
  MeshOutcome outcome = MeshOutcome::kGoesOn;
  proto::RuntimeError cause = {};  // kFailed
  bool all_freed = false;          // nothing is left of it
  std::vector<DeafMember> deaf = {};
  int64_t stale = 0;  // messages of a past that is over
};

class MeshLife {
 public:
  // first: kLoading, or kResuming: an earlier controller made it, and its members come back.
  MeshLife(MeshOrder order, const MeshLimits& limits, int64_t now_ms,
           MeshPhase first = MeshPhase::kLoading);

  MeshStep Step(const MeshInput& input, int64_t now_ms);
  const MeshState& state() const { return state_; }
  MeshGeneration gen() const { return state_.order.gen; }
  JobId job() const { return state_.order.job; }

 private:
  MeshState state_;
};

}  // namespace meshwright::controller
