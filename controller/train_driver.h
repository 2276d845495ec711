// The driver of a training job: init once, then the steps, with a validation after every
// `validate_every` steps and after the last one (controller/launches.h).
//
// A step that was told before, by an earlier run of the job, is not told again.
//
// A step that is validated is told together with its validation loss. A loss that is no number ends
// the job. Thread rule: one thread.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "controller/driver.h"
#include "controller/launches.h"

namespace meshwright::controller {

class TrainDriver final : public Driver {
 public:
  // As LaunchSchedule.
  TrainDriver(const ir::TrainSpec& train, bool validate, const ir::CheckpointSpec& checkpoint = {},
              const ir::StartPoint& start = {}, int64_t told_steps = 0)
      : schedule_(train, validate, checkpoint, start), told_steps_(told_steps) {}

  void TakeSnapshots(SnapshotCadence cadence) { schedule_.TakeSnapshots(cadence); }
  // The step before the start has not been told; if it is to be validated, that comes first.
  void Hold(proto::StepMetrics metrics);

  std::optional<PlannedLaunch> Next() override { return schedule_.Next(); }
  bool done() const override { return schedule_.done(); }
  DriverNews On(const PlannedLaunch& launch,
                const std::vector<proto::StepReport>& reports) override;
  Status Resume(const std::vector<ResumedLaunch>& launches, bool from_first) override;
  DriverNews Abandon() override;
  void RequestSave(SaveCause cause) override { schedule_.RequestSave(cause); }
  void SaveEnded(bool saved) override { schedule_.SaveEnded(saved); }
  void Halt(SaveCause cause) override { schedule_.Halt(cause); }
  void GoOn() override { schedule_.GoOn(); }
  bool halted() const override { return schedule_.halted(); }
  void SnapshotEnded(const proto::SnapshotTaken& taken, double step_seconds) override {
    if (taken.error.ok()) snapshot_step_ = taken.step;
    schedule_.SnapshotEnded(taken, step_seconds);
  }
  int64_t SnapshotStep() const override { return snapshot_step_; }
  std::optional<proto::StepMetrics> Held() const override { return held_; }

 private:
  struct ValidationSum {
    double loss = 0;
    double tokens = 0;
    double seconds = 0;
  };

  DriverNews OnSteps(const std::vector<proto::StepReport>& reports);
  DriverNews OnValidation(const PlannedLaunch& launch,
                          const std::vector<proto::StepReport>& reports);

  void Tell(proto::StepMetrics metrics, DriverNews& news) const;

  LaunchSchedule schedule_;
  int64_t told_steps_ = 0;
  int64_t snapshot_step_ = -1;
  std::deque<bool> resumed_;                // of launches to come in On(): whether they count
  std::optional<proto::StepMetrics> held_;  // waits for its validation loss
  ValidationSum validation_;                // of the batches that are done
};

}  // namespace meshwright::controller
