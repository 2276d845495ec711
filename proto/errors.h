// Errors as they travel: what went wrong, where, and who has to act.
//
// Thread rule: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace meshwright::proto {

inline constexpr size_t kMaxErrorText = 4096;

// What went wrong, for machines. Numbers are those of the wire.
enum class ErrorKind : uint8_t {
  kNone = 0,
  kInternal = 1,
  kPlanFailed = 2,
  kLoadFailed = 3,
  kConnectFailed = 4,
  kStepFailed = 5,
  kSaveFailed = 6,
  kWorkerLost = 7,
  kWorkerStopped = 8,
  kCancelled = 9,
  kInfeasible = 10,
  kControllerRestarted = 11,
  kControllerStopped = 12,
  kStoreFailed = 13,
  kProtocol = 14,
  kDiverged = 15,
  kRefused = 16,
  kExecutorLost = 17,
  kStalled = 18,
  kQueueTimeout = 19,
};
const char* ErrorKindName(ErrorKind kind);  // "WorkerLost"

struct RuntimeError {
  ErrorKind kind = ErrorKind::kNone;
  StatusCode code = StatusCode::kOk;
  Blame blame = Blame::kUnspecified;
  std::string worker;
  int32_t device = -1;
  int64_t step = -1;
  int32_t instruction = -1;
  std::string message;

  bool ok() const { return kind == ErrorKind::kNone; }
  Status ToStatus() const;
  // True when another member's death or abort may have caused it: not the root cause if a better
  // one exists.
  bool MayBeVictim() const;
  friend bool operator==(const RuntimeError&, const RuntimeError&) = default;
};
// OK gives an error with kNone; long messages are cut to kMaxErrorText.
RuntimeError MakeError(ErrorKind kind, const Status& status, std::string worker = "");

}  // namespace meshwright::proto
