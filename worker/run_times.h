// How long a thing that runs again and again typically takes.
//
// It is measured in several turns, best with something else between them: what the machine does for
// its other users changes within a second. Of a turn the mean counts, as many runs together take
// it, but not the slowest twentieth, of which a short turn has too many or none. Time in which
// another thread of this machine had the core is not counted: the share of the cores is measured
// apart (core_share.h).
//
// Thread rule: pure functions; TimeTurn runs on the calling thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/function_ref.h"
#include "base/result.h"
#include "worker/core_share.h"

namespace meshwright::worker {

struct TimedRun {
  int64_t ns = 0;
  bool interrupted = false;  // another thread had a core, for how long is not known
};

// Seconds of a run: the mean of the others but the slowest twentieth; the median of all where all
// were interrupted. At least a nanosecond, the clock's own resolution. REQUIRES a run.
double TurnSeconds(const std::vector<TimedRun>& runs);

struct TurnLimits {
  int64_t slice_ns = 0;
  int most = 1;  // runs; one at least
  // Runs use other threads, too: those that another thread interrupted do not count. Of runs of
  // the calling thread alone the time counts that it had the core.
  bool many_threads = false;
};

// Runs until the slice is over. Errors: of a run.
Result<double> TimeTurn(const Clock& clock, const TurnLimits& limits,
                        FunctionRef<Status()> run_once, const CoreMeter& meter = SystemCoreMeter());

}  // namespace meshwright::worker
