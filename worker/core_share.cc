#include "worker/core_share.h"

#include <sys/resource.h>

#include <algorithm>
#include <ctime>
#include <thread>
#include <vector>

namespace meshwright::worker {
namespace {

// Many turns of a fair scheduler, which are some milliseconds long.
constexpr int64_t kSpinNs = 333'000'000;
constexpr double kLeastShare = 0.01;

int64_t InterruptionsOf(int who) {
  rusage usage{};
  ::getrusage(who, &usage);
  return usage.ru_nivcsw;
}

class OsCoreMeter final : public CoreMeter {
 public:
  int64_t ThreadNs() const override {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
  }
  int64_t ThreadInterruptions() const override { return InterruptionsOf(RUSAGE_THREAD); }
  int64_t ProcessInterruptions() const override { return InterruptionsOf(RUSAGE_SELF); }
};

double SpinShare(const Clock& clock) {
  const int64_t begin_ns = clock.NowNs();
  const int64_t begin_cpu_ns = SystemCoreMeter().ThreadNs();
  int64_t now_ns = begin_ns;
  while (now_ns - begin_ns < kSpinNs) now_ns = clock.NowNs();
  return static_cast<double>(SystemCoreMeter().ThreadNs() - begin_cpu_ns) /
         static_cast<double>(now_ns - begin_ns);
}

}  // namespace

const CoreMeter& SystemCoreMeter() {
  static const OsCoreMeter* const meter = new OsCoreMeter;
  return *meter;
}

double MeasureCoreShare(int threads, const Clock& clock) {
  std::vector<double> shares(static_cast<size_t>(std::max(1, threads)), 1.0);
  std::vector<std::thread> others;
  for (size_t i = 1; i < shares.size(); ++i) {
    others.emplace_back([&clock, &share = shares[i]] { share = SpinShare(clock); });
  }
  shares[0] = SpinShare(clock);
  for (std::thread& other : others) other.join();
  double sum = 0;
  for (const double share : shares) sum += share;
  return std::clamp(sum / static_cast<double>(shares.size()), kLeastShare, 1.0);
}

}  // namespace meshwright::worker
