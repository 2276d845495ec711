// What a mesh runs, in order: init once, then the steps in launches of at most K, with a validation
// after every `validate_every` steps and after the last one. A launch never crosses a validation
// point; a validation of many batches goes as several launches, so that a report stays far below
// the largest message. Thread rule: one thread. Pure: the sequence is a function of the TrainSpec.
#pragma once

#include <cstdint>
#include <optional>

#include "controller/driver.h"
#include "ir/job.h"

namespace meshwright::controller {

class LaunchSchedule {
 public:
  static constexpr int64_t kMaxBatchesPerLaunch = 1000;

  LaunchSchedule() = default;
  // validate: false when the data has no validation part.
  LaunchSchedule(const ir::TrainSpec& train, bool validate);

  // The next launch, or nothing after the last.
  std::optional<PlannedLaunch> Next();
  // True for the launch that brings the last batches of a validation.
  bool EndsValidation(const PlannedLaunch& launch) const;
  bool done() const { return initialised_ && next_step_ >= steps_ && !ValidationDue(); }
  // True when a validation follows this 0-based step.
  bool ValidatedAfter(int64_t step) const;

 private:
  bool ValidationDue() const;

  int64_t steps_ = 0;
  int64_t steps_per_launch_ = 1;
  int64_t validate_every_ = 0;
  int64_t validation_batches_ = 0;
  bool initialised_ = false;
  int64_t next_step_ = 0;
  int64_t validated_steps_ = 0;
  int64_t validated_batches_ = 0;  // of the validation under way
};

}  // namespace meshwright::controller
