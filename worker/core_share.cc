#include "worker/core_share.h"

#include <algorithm>
#include <ctime>
#include <thread>
#include <vector>

namespace meshwright::worker {
namespace {

// Many turns of a fair scheduler, which are some milliseconds long.
constexpr int64_t kSpinNs = 333'000'000;
constexpr double kLeastShare = 0.01;

int64_t ThreadCpuNs() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

double SpinShare(const Clock& clock) {
  const int64_t begin_ns = clock.NowNs();
  const int64_t begin_cpu_ns = ThreadCpuNs();
  int64_t now_ns = begin_ns;
  while (now_ns - begin_ns < kSpinNs) now_ns = clock.NowNs();
  return static_cast<double>(ThreadCpuNs() - begin_cpu_ns) / static_cast<double>(now_ns - begin_ns);
}

}  // namespace

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
