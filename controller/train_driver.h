// The driver of a training job: init once, then the steps, with a validation after every
// `validate_every` steps and after the last one (controller/launches.h).
//
// A step that was told before, by an earlier run of the job, is not told again.
//
// A step that is validated is told together with its validation loss. A loss that is no number ends
// the job. Thread rule: one thread.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "controller/driver.h"
#include "controller/judge.h"
#include "controller/launches.h"

namespace meshwright::controller {

class TrainDriver final : public Driver {
 public:
  // As LaunchSchedule. sets: the names of the validation's; none: it is one.
  TrainDriver(const ir::TrainSpec& train, bool validate, const ir::CheckpointSpec& checkpoint = {},
              const ir::StartPoint& start = {}, int64_t told_steps = 0,
              std::vector<std::string> sets = {})
      : schedule_(train, validate, checkpoint, start,
                  sets.empty() ? 1 : static_cast<int64_t>(sets.size())),
        told_steps_(told_steps),
        set_batches_(train.validation_batches),
        sets_(std::move(sets)) {}

  // Validations decide about saves and the end.
  void JudgeBy(Judge judge) {
    judge_ = std::move(judge);
    schedule_.JudgeValidations();
  }
  // Outputs of the program that are averaged over batches; others are summed.
  void Average(std::set<std::string> outputs) { means_ = std::move(outputs); }

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
  std::optional<JudgedSoFar> Stands() const override {
    return judge_ ? std::optional(judge_->standing()) : std::nullopt;
  }

 private:
  struct Sum {
    double loss = 0;
    double tokens = 0;
  };
  struct ValidationSum {
    Sum all;
    double seconds = 0;
    std::map<std::string, Sum> sets;
    std::map<std::string, double> values;  // of the program's own outputs
    int64_t batches = 0;
  };

  DriverNews OnSteps(const std::vector<proto::StepReport>& reports);
  DriverNews OnValidation(const PlannedLaunch& launch,
                          const std::vector<proto::StepReport>& reports);

  void AddBatch(int64_t batch, const proto::StepReport& report);
  void NoteValidation(const ValidationSum& sum, proto::StepMetrics& metrics) const;
  void Tell(proto::StepMetrics metrics, DriverNews& news) const;

  LaunchSchedule schedule_;
  int64_t told_steps_ = 0;
  int64_t snapshot_step_ = -1;
  std::deque<bool> resumed_;                // of launches to come in On(): whether they count
  std::optional<proto::StepMetrics> held_;  // waits for its validation loss
  ValidationSum validation_;                // of the batches that are done
  std::optional<Judge> judge_;
  int64_t set_batches_ = 1;
  std::vector<std::string> sets_;
  std::set<std::string> means_;
};

}  // namespace meshwright::controller
