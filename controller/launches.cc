#include "controller/launches.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace meshwright::controller {

LaunchSchedule::LaunchSchedule(const ir::TrainSpec& train, bool validate,
                               const ir::CheckpointSpec& checkpoint, const ir::StartPoint& start,
                               int64_t validation_sets)
    : steps_(train.steps),
      steps_per_launch_(std::max<int64_t>(1, train.steps_per_launch)),
      validate_every_(train.validate_every),
      validation_batches_(validate ? train.validation_batches * validation_sets : 0),
      to_init_(start.empty() || !start.exclude.empty()),
      to_restore_(!start.empty()),
      next_step_(std::max<int64_t>(0, start.step)),
      validated_steps_(next_step_),
      save_enabled_(checkpoint.enable),
      save_interval_(checkpoint.enable ? checkpoint.interval : 0),
      waits_for_saves_(checkpoint.waits),
      saved_step_(start.step) {
  // The state of a snapshot is in no checkpoint.
  if (!start.empty() && start.checkpoint.path.empty()) {
    saved_step_ = -1;
    if (save_enabled_ && IsSavePoint(start.step)) save_due_ = SavePointCause(start.step);
  }
}

namespace {

bool IsBest(SaveCause cause) { return cause == SaveCause::kBest || cause == SaveCause::kBestEnd; }

}  // namespace

SaveCause LaunchSchedule::SavePointCause(int64_t step) const {
  return step == steps_ ? SaveCause::kEnd : SaveCause::kInterval;
}

bool LaunchSchedule::IsSavePoint(int64_t step) const {
  return step == steps_ || (save_interval_ > 0 && step % save_interval_ == 0);
}

bool LaunchSchedule::ValidatedAfter(int64_t step) const {
  if (validation_batches_ == 0) return false;
  const int64_t done = step + 1;
  return done == steps_ || (validate_every_ > 0 && done % validate_every_ == 0);
}

bool LaunchSchedule::ValidationDue() const {
  return next_step_ > validated_steps_ && ValidatedAfter(next_step_ - 1);
}

bool LaunchSchedule::EndsValidation(const PlannedLaunch& launch) const {
  return launch.program == ir::kEvalProgram &&
         launch.first_step + launch.count == validation_batches_;
}

std::optional<PlannedLaunch> LaunchSchedule::Next() {
  if (halting_ && !filled()) return std::nullopt;
  if (to_init_) {
    to_init_ = false;
    return PlannedLaunch{ir::kInitProgram, 0, 1};
  }
  if (to_restore_) {
    to_restore_ = false;
    return PlannedLaunch{"", next_step_, 0, LaunchKind::kRestore};
  }
  if (ValidationDue()) return NextValidation();
  if (judging_) return std::nullopt;
  if (SaveDue() && !saving_) {
    saving_ = true;
    saved_step_ = next_step_;
    return PlannedLaunch{"", next_step_, 0, LaunchKind::kSave,
                         *std::exchange(save_due_, std::nullopt)};
  }
  // The best is the state as it was judged: no step behind it, also while another save is written.
  if (SaveDue() && IsBest(*save_due_)) return std::nullopt;
  if (halting_ && !snapshots_.WantsStep(next_step_)) return std::nullopt;
  if (waits_for_saves_ && saving_) return std::nullopt;
  return NextSteps();
}

void LaunchSchedule::RequestSave(SaveCause cause) {
  if (filled() && save_enabled_ && !save_due_) save_due_ = cause;
}

void LaunchSchedule::SaveEnded(bool saved) {
  saving_ = false;
  save_failed_ = !saved;
}

void LaunchSchedule::Halt(SaveCause cause) {
  halting_ = true;
  if (!filled() || next_step_ == 0) return;
  if (!save_enabled_) return snapshots_.Halt();
  save_due_ = cause;
  // What could not be written then may be written now.
  if (save_failed_) saved_step_ = -1;
}

void LaunchSchedule::GoOn() {
  halting_ = false;
  snapshots_.GoOn();
  save_due_.reset();
}

PlannedLaunch LaunchSchedule::NextValidation() {
  const int64_t rest = validation_batches_ - validated_batches_;
  const PlannedLaunch launch{ir::kEvalProgram, validated_batches_,
                             std::min(rest, kMaxBatchesPerLaunch)};
  MW_CHECK(launch.count >= 1) << "a validation of " << launch.count << " batches";
  NoteValidation(launch);
  return launch;
}

void LaunchSchedule::NoteValidation(const PlannedLaunch& launch) {
  validated_batches_ += launch.count;
  if (!EndsValidation(launch)) return;
  validated_steps_ = next_step_;
  validated_batches_ = 0;
  judging_ = judges_;
}

void LaunchSchedule::Judged(bool best, bool ends) {
  MW_CHECK(judges_) << "a validation that nobody waits for is judged";
  judging_ = false;
  if (ends && next_step_ < steps_) {
    steps_ = next_step_;
    if (save_enabled_) save_due_ = SaveCause::kEnd;
  }
  if (!best || !save_enabled_) return;
  save_due_ = next_step_ == steps_ ? SaveCause::kBestEnd : SaveCause::kBest;
}

std::optional<PlannedLaunch> LaunchSchedule::NextSteps() {
  if (next_step_ >= steps_) return std::nullopt;
  int64_t count = std::min(steps_per_launch_, steps_ - next_step_);
  if (validation_batches_ > 0 && validate_every_ > 0) {
    count = std::min(count, validate_every_ - next_step_ % validate_every_);
  }
  if (save_interval_ > 0) count = std::min(count, save_interval_ - next_step_ % save_interval_);
  const std::optional<int64_t> due = snapshots_.Due(next_step_);
  if (due && snapshots_.CutsLaunches()) count = std::min(count, *due - next_step_);
  PlannedLaunch launch{ir::kStepProgram, next_step_, count};
  MW_CHECK(count >= 1 && next_step_ + count <= steps_) << count << " steps from " << next_step_;
  NoteSteps(count);
  launch.snapshot = due && next_step_ >= *due;
  if (launch.snapshot) snapshots_.Begin(next_step_);
  return launch;
}

void LaunchSchedule::NoteSteps(int64_t count) {
  next_step_ += count;
  if (save_enabled_ && IsSavePoint(next_step_)) save_due_ = SavePointCause(next_step_);
}

void LaunchSchedule::StartAt(int64_t step) {
  to_init_ = to_restore_ = false;
  next_step_ = validated_steps_ = step;
}

Status LaunchSchedule::Replay(const PlannedLaunch& launch) {
  if (launch.kind == LaunchKind::kRestore) {
    to_restore_ = false;
  } else if (launch.kind == LaunchKind::kSave) {
    save_due_.reset();
    saving_ = true;
    saved_step_ = launch.first_step;
  } else if (launch.program == ir::kInitProgram) {
    to_init_ = false;
  } else if (launch.program == ir::kEvalProgram && ValidationDue() &&
             launch.first_step == validated_batches_) {
    NoteValidation(launch);
  } else if (launch.program == ir::kStepProgram && filled() && !ValidationDue() &&
             launch.first_step == next_step_ && launch.count <= steps_ - next_step_) {
    NoteSteps(launch.count);
  } else {
    return Aborted(fmt::format("'{}' from {} on ran after step {}", launch.program,
                               launch.first_step, next_step_));
  }
  return OkStatus();
}

}  // namespace meshwright::controller
