#include "controller/states.h"

#include <fmt/format.h>

#include <array>

namespace meshwright::controller {
namespace {

using W = WorkerState;
using WE = WorkerEvent;
constexpr Transition<W, WE> kWorkerTable[] = {
    {W::kJoining, WE::kSeen, W::kReady},     {W::kJoining, WE::kExpired, W::kLost},
    {W::kJoining, WE::kClosed, W::kLost},    {W::kJoining, WE::kLeave, W::kDraining},
    {W::kJoining, WE::kReplaced, W::kLost},  {W::kReady, WE::kSeen, W::kReady},
    {W::kReady, WE::kSilent, W::kSuspect},   {W::kReady, WE::kExpired, W::kLost},
    {W::kReady, WE::kClosed, W::kLost},      {W::kReady, WE::kLeave, W::kDraining},
    {W::kReady, WE::kReplaced, W::kLost},    {W::kSuspect, WE::kSeen, W::kReady},
    {W::kSuspect, WE::kExpired, W::kLost},   {W::kSuspect, WE::kClosed, W::kLost},
    {W::kSuspect, WE::kLeave, W::kDraining}, {W::kSuspect, WE::kReplaced, W::kLost},
    {W::kDraining, WE::kSeen, W::kDraining}, {W::kDraining, WE::kExpired, W::kLost},
    {W::kDraining, WE::kClosed, W::kLeft},   {W::kDraining, WE::kReplaced, W::kLeft},
};

using J = JobState;
using JE = JobEvent;
constexpr Transition<J, JE> kJobTable[] = {
    {J::kQueued, JE::kPlace, J::kPlanning},
    {J::kQueued, JE::kFail, J::kFailed},
    {J::kQueued, JE::kCancel, J::kCancelled},
    {J::kPlanning, JE::kUnplace, J::kQueued},
    {J::kPlanning, JE::kPlanned, J::kStarting},
    {J::kPlanning, JE::kFail, J::kFailed},
    {J::kPlanning, JE::kCancel, J::kCancelled},
    {J::kStarting, JE::kStarted, J::kRunning},
    {J::kStarting, JE::kFail, J::kFailed},
    {J::kStarting, JE::kCancel, J::kCancelled},
    {J::kRunning, JE::kFinished, J::kSucceeded},
    {J::kRunning, JE::kFail, J::kFailed},
    {J::kRunning, JE::kCancel, J::kCancelled},
    {J::kStarting, JE::kRecover, J::kRecovering},
    {J::kRunning, JE::kRecover, J::kRecovering},
    {J::kRecovering, JE::kRecover, J::kRecovering},
    {J::kRecovering, JE::kPlace, J::kRecovering},
    {J::kRecovering, JE::kUnplace, J::kRecovering},
    {J::kRecovering, JE::kPlanned, J::kRecovering},
    {J::kRecovering, JE::kStarted, J::kRunning},
    {J::kRecovering, JE::kFail, J::kFailed},
    {J::kRecovering, JE::kCancel, J::kCancelled},
    {J::kQueued, JE::kPause, J::kPaused},
    {J::kPlanning, JE::kPause, J::kPaused},
    {J::kStarting, JE::kPause, J::kPaused},
    {J::kRunning, JE::kPause, J::kPaused},
    {J::kRecovering, JE::kPause, J::kPaused},
    {J::kPaused, JE::kResume, J::kQueued},
    {J::kPaused, JE::kFail, J::kFailed},
    {J::kPaused, JE::kCancel, J::kCancelled},
    {J::kStarting, JE::kUnplace, J::kQueued},
    {J::kRunning, JE::kUnplace, J::kQueued},
};

using M = MeshPhase;
using ME = MeshEvent;
constexpr Transition<M, ME> kMeshTable[] = {
    {M::kLoading, ME::kAllLoaded, M::kConnecting},   {M::kLoading, ME::kFail, M::kAborting},
    {M::kConnecting, ME::kAllConnected, M::kActive}, {M::kConnecting, ME::kFail, M::kAborting},
    {M::kActive, ME::kAllLaunched, M::kSaving},      {M::kActive, ME::kRelease, M::kReleasing},
    {M::kActive, ME::kFail, M::kAborting},           {M::kSaving, ME::kRelease, M::kReleasing},
    {M::kSaving, ME::kFail, M::kAborting},           {M::kAborting, ME::kFreed, M::kReleasing},
    {M::kResuming, ME::kAllBack, M::kActive},        {M::kResuming, ME::kFail, M::kAborting},
};

template <typename State, typename Event>
std::optional<State> Find(std::span<const Transition<State, Event>> table, State from,
                          Event event) {
  for (const auto& row : table) {
    if (row.from == from && row.event == event) return row.to;
  }
  return std::nullopt;
}

template <typename State, typename Event, typename StateName>
void Print(const char* title, std::span<const Transition<State, Event>> table, StateName name,
           std::string& out) {
  out += fmt::format("{}\n", title);
  for (const auto& row : table) {
    out += fmt::format("  {:<11} {:<12} {}\n", name(row.from), Name(row.event), name(row.to));
  }
}

}  // namespace

std::span<const Transition<WorkerState, WorkerEvent>> WorkerTable() { return kWorkerTable; }
std::span<const Transition<JobState, JobEvent>> JobTable() { return kJobTable; }
std::span<const Transition<MeshPhase, MeshEvent>> MeshTable() { return kMeshTable; }

std::optional<WorkerState> Next(WorkerState from, WorkerEvent event) {
  return Find(WorkerTable(), from, event);
}
std::optional<JobState> Next(JobState from, JobEvent event) {
  return Find(JobTable(), from, event);
}
std::optional<MeshPhase> Next(MeshPhase from, MeshEvent event) {
  return Find(MeshTable(), from, event);
}

const char* Name(WorkerState state) {
  static constexpr std::array<const char*, kWorkerStateCount> kNames = {
      "JOINING", "READY", "SUSPECT", "DRAINING", "LOST", "LEFT"};
  return kNames[static_cast<size_t>(state)];
}
const char* Name(WorkerEvent event) {
  static constexpr std::array<const char*, 6> kNames = {"seen",   "silent", "expired",
                                                        "closed", "leave",  "replaced"};
  return kNames[static_cast<size_t>(event)];
}
const char* Name(JobEvent event) {
  static constexpr std::array<const char*, 10> kNames = {
      "place", "unplace", "planned", "started", "finished",
      "fail",  "cancel",  "recover", "pause",   "resume"};
  return kNames[static_cast<size_t>(event)];
}
const char* Name(MeshPhase phase) {
  static constexpr std::array<const char*, 7> kNames = {
      "LOADING", "CONNECTING", "ACTIVE", "SAVING", "ABORTING", "RELEASING", "RESUMING"};
  return kNames[static_cast<size_t>(phase)];
}
const char* Name(MeshEvent event) {
  static constexpr std::array<const char*, 7> kNames = {
      "all_loaded", "all_connected", "all_launched", "release", "fail", "freed", "all_back"};
  return kNames[static_cast<size_t>(event)];
}

std::string FormatStateTables() {
  std::string out;
  Print(
      "worker", WorkerTable(), [](WorkerState s) { return Name(s); }, out);
  Print(
      "job", JobTable(), [](JobState s) { return proto::JobStateName(s); }, out);
  Print(
      "mesh", MeshTable(), [](MeshPhase s) { return Name(s); }, out);
  return out;
}

}  // namespace meshwright::controller
