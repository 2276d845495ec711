// LastSave: what is left to do for a job that has failed for good: its state is brought back from
// the memory of workers, and saved.
//
// As a driver it has two launches, the restore and the save, and runs no step: what made the job
// fail does not get a chance to do so again. Thread rule: one thread.
#pragma once

#include <optional>
#include <vector>

#include "controller/driver.h"

namespace meshwright::controller {

class LastSave final : public Driver {
 public:
  explicit LastSave(int64_t step) : step_(step) {}

  std::optional<PlannedLaunch> Next() override;
  bool done() const override { return false; }  // its run halts
  DriverNews On(const PlannedLaunch&, const std::vector<proto::StepReport>&) override { return {}; }
  Status Resume(const std::vector<ResumedLaunch>&, bool) override {
    return Aborted("the last save of a job is not taken up");
  }
  DriverNews Abandon() override { return {}; }
  void SaveEnded(bool) override { saving_ = false; }
  bool halted() const override { return next_ == kNothing && !saving_; }

 private:
  enum Launch { kRestoreState, kSaveState, kNothing };

  const int64_t step_;
  Launch next_ = kRestoreState;
  bool saving_ = false;
};

}  // namespace meshwright::controller
