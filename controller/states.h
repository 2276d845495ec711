// The state machines of the control plane, as tables: (from, event) -> to. What is not listed is
// not allowed.
//
// Worker: one registered process. Job: what the user sees. Mesh: one life ("generation") of a set
// of devices that work for one job; it outlives the job's end until every member has let go. Thread
// rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "proto/messages.h"

namespace meshwright::controller {

using proto::JobState;

enum class WorkerState : uint8_t { kJoining, kReady, kSuspect, kDraining, kLost, kLeft };
inline constexpr int kWorkerStateCount = 6;
enum class WorkerEvent : uint8_t { kSeen, kSilent, kExpired, kClosed, kLeave, kReplaced };

enum class JobEvent : uint8_t {
  kPlace,
  kUnplace,
  kPlanned,
  kStarted,
  kFinished,
  kFail,
  kCancel,
  kRecover,
  kPause,
  kResume
};

// kResuming: of an earlier life of the controller; its members have it, and come back.
enum class MeshPhase : uint8_t {
  kLoading,
  kConnecting,
  kActive,
  kSaving,
  kAborting,
  kReleasing,
  kResuming
};
enum class MeshEvent : uint8_t {
  kAllLoaded,
  kAllConnected,
  kAllLaunched,
  kRelease,
  kFail,
  kFreed,
  kAllBack
};

template <typename State, typename Event>
struct Transition {
  State from;
  Event event;
  State to;
};

std::span<const Transition<WorkerState, WorkerEvent>> WorkerTable();
std::span<const Transition<JobState, JobEvent>> JobTable();
std::span<const Transition<MeshPhase, MeshEvent>> MeshTable();

// The state after `event`, or nothing when the table does not list it.
std::optional<WorkerState> Next(WorkerState from, WorkerEvent event);
std::optional<JobState> Next(JobState from, JobEvent event);
std::optional<MeshPhase> Next(MeshPhase from, MeshEvent event);

const char* Name(WorkerState state);  // "READY"
const char* Name(WorkerEvent event);
const char* Name(JobEvent event);
const char* Name(MeshPhase phase);
const char* Name(MeshEvent event);

// The three tables as text, one "FROM event TO" per line.
std::string FormatStateTables();

}  // namespace meshwright::controller
