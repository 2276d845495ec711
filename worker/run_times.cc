#include "worker/run_times.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/median.h"

namespace meshwright::worker {
double TurnSeconds(const std::vector<TimedRun>& runs) {
  constexpr size_t kSlowestPart = 20;
  constexpr double kSecondsPerNs = 1e-9;
  MW_CHECK(!runs.empty()) << "a turn without a run";
  std::vector<double> calm_ns, all_ns;
  for (const TimedRun& run : runs) {
    all_ns.push_back(static_cast<double>(run.ns));
    if (!run.interrupted) calm_ns.push_back(all_ns.back());
  }
  if (calm_ns.empty()) return std::max(1.0, Median(std::move(all_ns))) * kSecondsPerNs;
  std::sort(calm_ns.begin(), calm_ns.end());
  calm_ns.resize(calm_ns.size() - calm_ns.size() / kSlowestPart);
  const double sum_ns = std::accumulate(calm_ns.begin(), calm_ns.end(), 0.0);
  return std::max(1.0, sum_ns / static_cast<double>(calm_ns.size())) * kSecondsPerNs;
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
