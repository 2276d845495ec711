// What a mesh runs, in order: what fills the state (init, or a restore, or both where a part of the
// state starts anew) once, then the steps in launches of at most K, with a validation
// after every `validate_every` steps and after the last one, and a save after every `interval`
// steps and after the last one. A launch never crosses a point of either; where both are due the
// validation goes first. A validation of many batches goes as several launches, so that a report
// stays far below the largest message. A save that is due while another one is being written waits
// for a later boundary; where the job says so, the steps wait for it.
//
// A halt comes between two steps: the validation that is due goes before it, as in the run that is
// not halted, and a save of what is not saved yet. Where nothing is saved, snapshots are: a last
// step is done with one. A state that no step has changed is not worth it: another run makes it
// again.
//
// Thread rule: one thread. Pure: the sequence is a function of the specs, of what is asked for and
// of when saves end.
#pragma once

#include <cstdint>
#include <optional>

#include "controller/driver.h"
#include "controller/snapshot_cadence.h"
#include "ir/job.h"

namespace meshwright::controller {

class LaunchSchedule {
 public:
  static constexpr int64_t kMaxBatchesPerLaunch = 1000;

  LaunchSchedule() = default;
  // validate: false when the data has no validation part; sets: each has its batches. Steps before
  // the start are done, and validated.
  LaunchSchedule(const ir::TrainSpec& train, bool validate,
                 const ir::CheckpointSpec& checkpoint = {}, const ir::StartPoint& start = {},
                 int64_t validation_sets = 1);

  // Snapshots come with the launches that get to where they are due.
  void TakeSnapshots(SnapshotCadence cadence) { snapshots_ = cadence; }
  // The validation behind the steps before the start is not done.
  void ValidateStart() { --validated_steps_; }

  // The next launch, or nothing after the last.
  std::optional<PlannedLaunch> Next();
  // As if Next() had given this launch. Errors: kAborted: it could not have.
  Status Replay(const PlannedLaunch& launch);
  // The state is filled, and steps before `step` are done and validated.
  void StartAt(int64_t step);
  // True for the launch that brings the last batches of a validation.
  bool EndsValidation(const PlannedLaunch& launch) const;
  bool done() const {
    return filled() && next_step_ >= steps_ && !ValidationDue() && !judging_ && !SaveDue() &&
           !saving_;
  }
  void RequestSave(SaveCause cause);
  void SaveEnded(bool saved);
  void Halt(SaveCause cause);
  void GoOn();
  bool halted() const {
    const bool waits =
        ValidationDue() || SaveDue() || (next_step_ < steps_ && snapshots_.HaltWaits(next_step_));
    return halting_ && !(filled() && waits) && !saving_ && !judging_;
  }
  void SnapshotEnded(const proto::SnapshotTaken& taken, double step_seconds) {
    snapshots_.End(taken, step_seconds);
  }
  // From here on nothing follows a validation before Judged() says what it was worth.
  void JudgeValidations() { judges_ = true; }
  // best: a save of the state is due, unless it is saved. ends: no step follows but what is to be
  // done behind the last one.
  void Judged(bool best, bool ends);
  // True when a validation follows this 0-based step.
  bool ValidatedAfter(int64_t step) const;

 private:
  bool filled() const { return !to_init_ && !to_restore_; }
  bool ValidationDue() const;
  bool IsSavePoint(int64_t step) const;
  SaveCause SavePointCause(int64_t step) const;
  // Not the same state twice, however often it is asked for.
  bool SaveDue() const { return save_due_.has_value() && next_step_ != saved_step_; }
  std::optional<PlannedLaunch> NextSteps();
  PlannedLaunch NextValidation();
  void NoteSteps(int64_t count);
  void NoteValidation(const PlannedLaunch& launch);

  int64_t steps_ = 0;
  int64_t steps_per_launch_ = 1;
  int64_t validate_every_ = 0;
  int64_t validation_batches_ = 0;
  bool to_init_ = true;
  bool to_restore_ = false;
  int64_t next_step_ = 0;
  int64_t validated_steps_ = 0;
  int64_t validated_batches_ = 0;  // of the validation under way
  bool judges_ = false;
  bool judging_ = false;  // a validation is under way, or over and not judged
  bool save_enabled_ = false;
  int64_t save_interval_ = 0;  // 0: only when asked, and at the end
  bool waits_for_saves_ = false;
  std::optional<SaveCause> save_due_;
  bool saving_ = false;
  int64_t saved_step_ = -1;  // that the last save is of, or the start
  bool save_failed_ = false;
  bool halting_ = false;
  SnapshotCadence snapshots_;
};

}  // namespace meshwright::controller
