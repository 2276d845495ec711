// How long a thing that runs again and again typically takes.
//
// It is measured in several turns, best with something else between them: what the machine does for
// its other users changes within a second. Of a turn the mean counts, as many runs together take
// it: not of moments in which another program had the core (the share of the cores is measured
// apart, core_share.h), nor of the slowest twentieth, of which a short turn has too many or none.
// Of the turns the median counts.
//
// Thread rule: pure functions; TimeTurn runs on the calling thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/function_ref.h"
#include "base/result.h"

namespace meshwright::worker {

struct TimedRun {
  int64_t ns = 0;
  bool interrupted = false;  // another program had the core
};

// Seconds of a run: the mean of the calm ones but the slowest twentieth; of the fastest alone where
// all were interrupted. At least a nanosecond, the clock's own resolution. REQUIRES a run.
double TurnSeconds(const std::vector<TimedRun>& runs);

struct TurnLimits {
  int64_t slice_ns = 0;
  int most = 1;                // runs; one at least
  bool whole_process = false;  // runs use other threads, too
};

// Runs until the slice is over. Errors: of a run.
Result<double> TimeTurn(const Clock& clock, const TurnLimits& limits,
                        FunctionRef<Status()> run_once);

}  // namespace meshwright::worker
