// InstructionCounter: what a device has done of its programs, where it is, and how long it waited
// for others.
//
// What is to outlive the process goes into a mark (worker/mesh_record.h) where there is one; the
// rest is for metrics and reports. A wait is the whole of a collective or a message: what a rank is
// busy with is what is left of its step.
//
// Thread rule: one writer, the device's thread; Read() from any.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "base/clock.h"
#include "ir/program.h"
#include "worker/mesh_record.h"
#include "worker/runtime.h"
#include "worker/step_recorder.h"

namespace meshwright::worker {

class InstructionCounter {
 public:
  void SetMark(DeviceMark* mark) { mark_ = mark; }
  // The mark of a group of the device; null: nobody asks.
  GroupMark* Group(const std::string& name) { return mark_ ? mark_->Group(name) : nullptr; }

  void Enter(int rank, const std::string& program, int64_t step) {
    if (mark_ != nullptr) mark_->Enter(rank, program, step);
  }
  void Leave() {
    if (mark_ != nullptr) mark_->Leave();
  }
  void At(size_t instruction) {
    at_ = static_cast<int64_t>(instruction);
    if (mark_ != nullptr) mark_->At(static_cast<int64_t>(instruction));
  }
  // Of the instruction that it is at: the node, or with StepMark::kWhole all of it, has ended.
  void Passed(int32_t node) { recorder_.Mark(at_, node); }
  StepRecorder& recorder() { return recorder_; }
  void Count(ir::Opcode op) {
    std::atomic<int64_t>& count = counts_[static_cast<size_t>(op)];
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  InstructionCounts Read() const;

  // A collective (of a group with a mark, or null) or a message begins; it has ended well.
  void Meet(GroupMark* group) {
    if (group != nullptr) group->Enter();
    met_ns_ = SystemClock().NowNs();
  }
  void Part(GroupMark* group) {
    waited_ns_ += SystemClock().NowNs() - met_ns_;
    if (group != nullptr) group->Leave();
  }
  // Since it was asked last.
  int64_t TakeWaitedNs() { return std::exchange(waited_ns_, 0); }

 private:
  std::array<std::atomic<int64_t>, ir::kOpcodeCount> counts_{};
  DeviceMark* mark_ = nullptr;
  StepRecorder recorder_;
  int64_t at_ = 0;
  int64_t met_ns_ = 0;
  int64_t waited_ns_ = 0;
};

}  // namespace meshwright::worker
