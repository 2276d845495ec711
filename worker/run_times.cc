#include "worker/run_times.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace meshwright::worker {
double TurnSeconds(const std::vector<TimedRun>& runs) {
  constexpr size_t kSlowestPart = 20;
  constexpr double kSecondsPerNs = 1e-9;
  MW_CHECK(!runs.empty()) << "a turn without a run";
  std::vector<int64_t> calm_ns;
  int64_t least_ns = runs.front().ns;
  for (const TimedRun& run : runs) {
    least_ns = std::min(least_ns, run.ns);
    if (!run.interrupted) calm_ns.push_back(run.ns);
  }
  if (calm_ns.empty()) calm_ns.push_back(least_ns);
  std::sort(calm_ns.begin(), calm_ns.end());
  calm_ns.resize(calm_ns.size() - calm_ns.size() / kSlowestPart);
  const int64_t sum_ns = std::accumulate(calm_ns.begin(), calm_ns.end(), int64_t{0});
  const double mean_ns = static_cast<double>(sum_ns) / static_cast<double>(calm_ns.size());
  return std::max(1.0, mean_ns) * kSecondsPerNs;
}

Result<double> TimeTurn(const Clock& clock, const TurnLimits& limits,
                        FunctionRef<Status()> run_once, const CoreMeter& meter) {
  const auto interruptions = [&] {
    return limits.many_threads ? meter.ProcessInterruptions() : meter.ThreadInterruptions();
  };
  std::vector<TimedRun> runs;
  const int64_t end_ns = clock.NowNs() + limits.slice_ns;
  for (;;) {
    const int64_t before = interruptions();
    const int64_t begin_thread_ns = meter.ThreadNs();
    const int64_t begin_ns = clock.NowNs();
    if (!runs.empty() && begin_ns >= end_ns) break;
    MW_TRY(run_once());
    TimedRun run{clock.NowNs() - begin_ns};
    if (interruptions() != before) {
      run.interrupted = limits.many_threads;
      if (!limits.many_threads) run.ns = std::min(run.ns, meter.ThreadNs() - begin_thread_ns);
    }
    runs.push_back(run);
    if (static_cast<int>(runs.size()) >= limits.most) break;
  }
  return TurnSeconds(runs);
}

}  // namespace meshwright::worker
