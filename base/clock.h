// Clock: where time comes in. Deadline: how long a wait may last.
//
// Code that decides by time takes a Clock& in its constructor, so that tests drive it with
// one of their own. Durations are measured on NowNs (never jumps, counts suspended time); UnixMs is
// for records that people and other machines read.
//
// Thread rule: thread-safe.
#pragma once

#include <chrono>
#include <cstdint>

namespace meshwright {

class Clock {
 public:
  virtual ~Clock() = default;
  // Nanoseconds since some fixed point (CLOCK_BOOTTIME): monotonic, equal for all processes of a
  // host.
  virtual int64_t NowNs() const = 0;
  // Milliseconds since 1970-01-01 UTC. May jump when the host's time is set.
  virtual int64_t UnixMs() const = 0;

  int64_t NowMs() const { return NowNs() / 1'000'000; }
};

// The machine's clock. Lives for the whole process.
Clock& SystemClock();

// A point in time that a wait must not pass. The clock must outlive it.
class Deadline {
 public:
  // `timeout_ms` from now; negative counts as 0, very large ones saturate (292 years).
  static Deadline After(int64_t timeout_ms, const Clock& clock = SystemClock());

  // Milliseconds left, rounded up so that waiting that long reaches the deadline; 0 when expired.
  int64_t remaining_ms() const;
  bool expired() const { return clock_->NowNs() >= at_ns_; }
  int64_t at_ns() const { return at_ns_; }

  // The same moment for std::condition_variable::wait_until. System clock only.
  std::chrono::steady_clock::time_point SteadyTimePoint() const;

 private:
  Deadline(int64_t at_ns, const Clock& clock) : at_ns_(at_ns), clock_(&clock) {}

  int64_t at_ns_;
  const Clock* clock_;
};

}  // namespace meshwright
