#include "proto/messages.h"

#include <array>
#include <utility>

#include "base/utf8.h"

namespace meshwright::proto {
namespace {

template <size_t N>
const char* NameAt(const std::array<const char*, N>& names, size_t index) {
  return index < N ? names[index] : "Unknown";
}

}  // namespace

const char* ErrorKindName(ErrorKind kind) {
  static constexpr std::array<const char*, 20> kNames = {"None",
                                                         "Internal",
                                                         "PlanFailed",
                                                         "LoadFailed",
                                                         "ConnectFailed",
                                                         "StepFailed",
                                                         "SaveFailed",
                                                         "WorkerLost",
                                                         "WorkerStopped",
                                                         "Cancelled",
                                                         "Infeasible",
                                                         "ControllerRestarted",
                                                         "ControllerStopped",
                                                         "StoreFailed",
                                                         "ProtocolError",
                                                         "Diverged",
                                                         "Refused",
                                                         "ExecutorLost",
                                                         "Stalled",
                                                         "QueueTimeout"};
  return NameAt(kNames, static_cast<size_t>(kind));
}

Status RuntimeError::ToStatus() const {
  if (ok()) return OkStatus();
  const StatusCode status_code = code == StatusCode::kOk ? StatusCode::kUnknown : code;
  return Status(status_code, message).WithBlame(blame);
}

bool RuntimeError::MayBeVictim() const {
  switch (kind) {
    case ErrorKind::kWorkerLost:
    case ErrorKind::kWorkerStopped:
    case ErrorKind::kExecutorLost:
    case ErrorKind::kStalled:
    case ErrorKind::kCancelled:
    case ErrorKind::kControllerStopped:
    case ErrorKind::kControllerRestarted:
    case ErrorKind::kStoreFailed:
    case ErrorKind::kProtocol:
    case ErrorKind::kDiverged:
    case ErrorKind::kRefused:
      return false;
    default:
      break;
  }
  if (blame == Blame::kPeerVictim) return true;
  if (blame == Blame::kHardware) return false;
  return code == StatusCode::kUnavailable || code == StatusCode::kAborted ||
         code == StatusCode::kDeadlineExceeded || code == StatusCode::kCancelled;
}

RuntimeError MakeError(ErrorKind kind, const Status& status, std::string worker) {
  RuntimeError error;
  if (status.ok()) return error;
  error.kind = kind;
  error.code = status.code();
  error.blame = status.blame();
  error.worker = std::move(worker);
  error.message = TruncateUtf8(status.message(), kMaxErrorText);
  return error;
}

UpMessage MakeUp(Term term, UpBody body) { return UpMessage{term, std::move(body)}; }

UpMessage MakeHeartbeat(Term term, std::vector<MeshMarks> meshes) {
  UpMessage message;
  message.term = term;
  message.body = Heartbeat{std::move(meshes)};
  return message;
}

const char* KindName(const UpBody& body) {
  static constexpr std::array<const char*, std::variant_size_v<UpBody>> kNames = {
      "Register",
      "Heartbeat",
      "Loaded",
      "CommUp",
      "LaunchDone",
      "WeightsSaved",
      "MeshReleased",
      "MeshError",
      "Leave",
      "ActorReply",
      "ActorEvent",
      "StateSaved",
      "CheckpointCommitted",
      "SnapshotsHeld",
      "SnapshotCopied",
      "ResumeMesh",
      "LogLines",
      "LogPiece"};
  return NameAt(kNames, body.index());
}

const char* KindName(const DownBody& body) {
  static constexpr std::array<const char*, std::variant_size_v<DownBody>> kNames = {
      "Welcome",        "LoadMesh",      "Connect",      "Launch",       "SaveWeights",
      "AbortMesh",      "ReleaseMesh",   "ReadTensors",  "WriteTensors", "SpawnActor",
      "ActorMessage",   "StopActor",     "SaveState",    "RestoreState", "CommitCheckpoint",
      "QuerySnapshots", "DropSnapshots", "CopySnapshot", "Drained",      "FetchLog"};
  return NameAt(kNames, body.index());
}

const char* JobStateName(JobState state) {
  static constexpr std::array<const char*, kJobStateCount> kNames = {
      "UNSPECIFIED", "QUEUED", "PLANNING",  "STARTING",   "RUNNING",
      "SUCCEEDED",   "FAILED", "CANCELLED", "RECOVERING", "PAUSED"};
  return NameAt(kNames, static_cast<size_t>(state));
}

bool IsTerminal(JobState state) {
  return state == JobState::kSucceeded || state == JobState::kFailed ||
         state == JobState::kCancelled;
}

std::string KindOf(const Register& info) {
  return info.device_kind.empty() ? "cpu" : info.device_kind;
}

}  // namespace meshwright::proto
