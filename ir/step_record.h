// What a device recorded of a step: when each instruction of its program ended, and each node of a
// RUN.
//
// A device does one thing after the other, so that an end is the begin of what follows: one reading
// of the clock says both. What other threads do beside the device is a record of its own, with
// another lane; there the time between two things is a thing, too (kNothing).
//
// Times are those of the worker's clock (base/clock.h), which is one clock for a host. A ClockRound
// says what the controller's clock showed meanwhile.
//
// Thread rule: values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace meshwright::ir {

struct StepMark {
  static constexpr int32_t kWhole = -1;    // all of the instruction, or what its nodes left of it
  static constexpr int32_t kAwaited = -2;  // a copy between memories that the instruction needs
  static constexpr int32_t kNothing = -3;  // the lane had nothing to do
  int32_t instruction = 0;
  int32_t node = kWhole;  // of the graph of a RUN
  int64_t end_ns = 0;
  friend bool operator==(const StepMark&, const StepMark&) = default;
};

// Lanes of a device.
inline constexpr int32_t kStepLane = 0;  // its own thread

struct StepRecord {
  int32_t rank = 0;
  int32_t lane = kStepLane;
  std::string program;
  int64_t step = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  int64_t left_out = 0;  // marks that had no room, the last ones
  std::vector<StepMark> marks;
  friend bool operator==(const StepRecord&, const StepRecord&) = default;
};

struct StepRange {
  int64_t first = 0;
  int64_t count = 0;  // 0: none

  int64_t end() const { return first + count; }
  bool Has(int64_t step) const { return step >= first && step < end(); }
  // The steps that both have.
  StepRange And(const StepRange& other) const {
    const int64_t from = std::max(first, other.first);
    return {from, std::max<int64_t>(0, std::min(end(), other.end()) - from)};
  }
  friend bool operator==(const StepRange&, const StepRange&) = default;
};

// A message and its answer. The answer's way may be slower than the message's by any part of what
// both took, so that the offset is known to half of that. Source: RFC 5905, section 8.
struct ClockRound {
  int64_t sent_ns = 0;     // by the controller's clock
  int64_t heard_ns = 0;    // by the worker's
  int64_t said_ns = 0;     // by the worker's
  int64_t arrived_ns = 0;  // by the controller's

  bool complete() const { return sent_ns != 0 && heard_ns != 0 && said_ns != 0 && arrived_ns != 0; }
  // What the worker's clock is ahead of the controller's. Differences first: none overflows.
  int64_t offset_ns() const { return ((heard_ns - sent_ns) + (said_ns - arrived_ns)) / 2; }
  // The most that offset_ns() is wrong by.
  int64_t error_ns() const {
    return std::max<int64_t>(0, (arrived_ns - sent_ns) - (said_ns - heard_ns)) / 2;
  }
  friend bool operator==(const ClockRound&, const ClockRound&) = default;
};

}  // namespace meshwright::ir
