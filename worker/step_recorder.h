// StepRecorder: writes down what a device does in a step (ir/step_record.h).
//
// Its memory is taken by who asks for the record, before the step: a mark is one reading of the
// clock and one store. While no step is recorded a mark is one comparison. What has no room is
// counted.
//
// Thread rule: one thread, that of the lane; a lane of another thread has a recorder of its own.
// Ownership: clock and record outlive it.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "base/clock.h"
#include "ir/step_record.h"

namespace meshwright::worker {

class StepRecorder {
 public:
  explicit StepRecorder(const Clock& clock = SystemClock()) : clock_(clock) {}

  // A step begins. REQUIRES that none is being recorded.
  void Begin(ir::StepRecord& into) {
    MW_CHECK(into_ == nullptr && into.marks.empty())
        << "step " << into.step << " is recorded twice";
    into_ = &into;
    into.begin_ns = into.end_ns = clock_.NowNs();
  }
  // Also of a step that failed. No step is being recorded: nothing.
  void End() {
    if (into_ != nullptr) into_->end_ns = clock_.NowNs();
    into_ = nullptr;
  }
  // The node, or with StepMark::kWhole the instruction, has ended just now.
  void Mark(int64_t instruction, int32_t node) {
    if (into_ == nullptr) return;
    if (into_->marks.size() == into_->marks.capacity()) {
      ++into_->left_out;
      return;
    }
    into_->marks.push_back({static_cast<int32_t>(instruction), node, clock_.NowNs()});
  }

 private:
  const Clock& clock_;
  ir::StepRecord* into_ = nullptr;  // null: nobody asks
};

}  // namespace meshwright::worker
