#include "base/clock.h"

#include <algorithm>
#include <ctime>
#include <limits>

namespace meshwright {
namespace {

int64_t ReadNs(clockid_t id) {
  timespec now{};
  clock_gettime(id, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

class RealClock final : public Clock {
 public:
  int64_t NowNs() const override { return ReadNs(CLOCK_BOOTTIME); }
  int64_t UnixMs() const override { return ReadNs(CLOCK_REALTIME) / 1'000'000; }
};

}  // namespace

Clock& SystemClock() {
  static RealClock clock;
  return clock;
}

Deadline Deadline::After(int64_t timeout_ms, const Clock& clock) {
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  const int64_t now_ns = clock.NowNs();
  const int64_t wait_ms = std::max<int64_t>(timeout_ms, 0);
  const bool overflows = wait_ms > (kNever - now_ns) / 1'000'000;
  return Deadline(overflows ? kNever : now_ns + wait_ms * 1'000'000, clock);
}

int64_t Deadline::remaining_ms() const {
  const int64_t left_ns = at_ns_ - clock_->NowNs();
  return left_ns <= 0 ? 0 : left_ns / 1'000'000 + (left_ns % 1'000'000 != 0 ? 1 : 0);
}

std::chrono::steady_clock::time_point Deadline::SteadyTimePoint() const {
  // Capped at a year: steady_clock arithmetic on the far end of the range would overflow.
  constexpr int64_t kYearNs = int64_t{365} * 24 * 3600 * 1'000'000'000;
  const int64_t left_ns = std::clamp<int64_t>(at_ns_ - clock_->NowNs(), 0, kYearNs);
  return std::chrono::steady_clock::now() + std::chrono::nanoseconds(left_ns);
}

}  // namespace meshwright
