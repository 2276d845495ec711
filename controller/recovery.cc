#include "controller/recovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "checkpoint/folder.h"
#include "controller/elastic.h"

namespace meshwright::controller {

using proto::ErrorKind;

namespace {

constexpr int64_t kDayMs = 86'400'000;

// Whether another run may do better.
bool MayPass(const proto::RuntimeError& cause) {
  if (cause.blame == Blame::kUser) return false;
  switch (cause.kind) {
    case ErrorKind::kWorkerLost:
    case ErrorKind::kWorkerStopped:
    case ErrorKind::kExecutorLost:
    case ErrorKind::kStalled:
    case ErrorKind::kStepFailed:
    case ErrorKind::kConnectFailed:
    case ErrorKind::kLoadFailed:
    case ErrorKind::kSaveFailed:
    case ErrorKind::kInternal:
    case ErrorKind::kControllerRestarted:
      return true;
    default:
      return false;
  }
}

bool IsLoss(const proto::RuntimeError& cause) {
  return cause.kind == ErrorKind::kWorkerLost || cause.kind == ErrorKind::kWorkerStopped;
}

}  // namespace

bool HostIsToBlame(const proto::RuntimeError& cause) {
  if (cause.worker.empty()) return false;
  const bool disk = cause.kind == ErrorKind::kLoadFailed && cause.blame == Blame::kInfra;
  return disk || cause.blame == Blame::kHardware;
}

namespace {

// Of the job's own work, as far as anyone can tell: what comes of it may come again.
bool IsOwn(const proto::RuntimeError& cause) {
  if (cause.kind == ErrorKind::kSaveFailed) return true;
  if (cause.kind == ErrorKind::kExecutorLost || cause.kind == ErrorKind::kStalled) {
    return cause.blame != Blame::kInfra;
  }
  if (cause.kind != ErrorKind::kStepFailed) return false;
  // A device that gives up at one step may have been made to by what it ran.
  if (cause.blame == Blame::kHardware) return true;
  if (cause.code == StatusCode::kUnavailable) return false;
  return cause.blame != Blame::kInfra && cause.blame != Blame::kPeerVictim;
}

// Whether a failure is the same as one before. Reports of the launch before it may have come or
// not.
bool IsAgain(const RecoveryHistory::Own& own, const std::optional<RecoveryHistory::Own>& before,
             int64_t steps_per_launch) {
  return before && before->kind == own.kind && (!own.elsewhere || before->worker != own.worker) &&
         std::abs(before->steps_done - own.steps_done) <= std::max<int64_t>(1, steps_per_launch);
}

// A client has seen what its calls did: that is not undone behind its back.
bool CanGoBack(const ir::JobRequest& job) { return job.driver.kind != ir::DriverKind::kClient; }

}  // namespace

Judgement JudgeFailure(const RunFailure& failure, const ir::JobRequest& job, int64_t now_unix_ms,
                       RecoveryHistory& history) {
  const proto::RuntimeError& cause = failure.cause;
  if (IsLoss(cause) && !failure.was_begun) return {AfterFailure::kPlanAgain, ""};
  const ir::FaultToleranceSpec& spec = job.fault_tolerance;
  if (!spec.enable || !CanGoBack(job) || !MayPass(cause)) return {};
  // Before it has done any work, what fails is what was asked for, unless a worker or the
  // controller is gone, or a machine is to blame.
  const bool is_outside =
      IsLoss(cause) || cause.kind == ErrorKind::kControllerRestarted || HostIsToBlame(cause);
  if (!failure.was_active && !is_outside) return {};
  if (IsOwn(cause)) {
    const RecoveryHistory::Own own{cause.kind, failure.steps_done, cause.worker,
                                   HostIsToBlame(cause)};
    if (IsAgain(own, history.own, job.train.steps_per_launch)) {
      return {AfterFailure::kEndJob,
              fmt::format("it failed twice in the same way after step {}", failure.steps_done),
              /*is_own=*/true};
    }
    history.own = own;
  }
  while (!history.unix_ms.empty() && history.unix_ms.front() <= now_unix_ms - kDayMs) {
    history.unix_ms.pop_front();
  }
  if (static_cast<int64_t>(history.unix_ms.size()) >= spec.max_recoveries) {
    return {AfterFailure::kEndJob, fmt::format("it recovered {} times within a day, the most that "
                                               "fault_tolerance.max_recoveries allows",
                                               history.unix_ms.size())};
  }
  history.unix_ms.push_back(now_unix_ms);
  return {AfterFailure::kRecover, ""};
}

std::optional<std::vector<RankPlace>> FindSeats(const Recovery& recovery,
                                                const Membership& members) {
  return FindSeats(recovery.plan, recovery.ranks, recovery.avoid,
                   members.FreeDevices(recovery.kind));
}

ir::StartPoint NewestStart(const ir::JobRequest& job, const JobRecord& record) {
  if (record.checkpoint_step <= job.start.step) return job.start;
  ir::StartPoint start;
  start.step = record.checkpoint_step;
  start.checkpoint = {record.checkpoint_folder.root,
                      record.checkpoint_folder.path + "/" + checkpoint::StepName(start.step)};
  return start;
}

}  // namespace meshwright::controller
