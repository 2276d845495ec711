// ProgramsAhead: plans of a job that runs, made before they are needed: for what is left of its
// devices when one of its workers is gone.
//
// Losses that leave the same behind share a plan. They are kept until the job ends or goes on by a
// plan for no more devices, and are few. Thread rule: the core's thread. A value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "controller/events.h"

namespace meshwright::controller {

class ProgramsAhead {
 public:
  static constexpr size_t kMost = 8;
  static constexpr size_t kMostKept = 4;  // of a plan before

  // epoch: by which late answers of the planner are known.
  explicit ProgramsAhead(int64_t epoch = 0) : epoch_(epoch) {}

  int64_t epoch() const { return epoch_; }
  // For the run by a plan with fewer devices: those for still fewer are of use, since what fails
  // together is seldom seen to fail at once.
  ProgramsAhead After(size_t devices, int64_t epoch) const;
  // loss: what is lost, as far as a plan depends on it.
  bool Wants(const std::string& loss) const {
    return !by_loss_.contains(loss) && by_loss_.size() < kMost;
  }
  // Null: there is none for what is left.
  void Take(const std::string& loss, std::shared_ptr<const PlannedJob> plan) {
    by_loss_[loss] = std::move(plan);
  }
  // Those of the most devices first.
  std::vector<std::shared_ptr<const PlannedJob>> plans() const;
  // For people: "data=1 tensor=1 ..., or data=2 ..."; empty: there are none.
  std::string ToString() const;

  // All losses of this run of the job are looked at.
  bool IsComplete(int run) const { return complete_run_ == run; }
  // Returns what people are to be told, once.
  std::string Complete(int run);

 private:
  int64_t epoch_;
  int complete_run_ = 0;
  std::string told_;
  std::map<std::string, std::shared_ptr<const PlannedJob>> by_loss_;
};

}  // namespace meshwright::controller
