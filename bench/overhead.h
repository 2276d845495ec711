// What walking a program costs beside its kernels.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "bench/device_run.h"

namespace meshwright::bench {

struct Overhead {
  int64_t nodes = 0;         // of one step
  int64_t instructions = 0;  // of one step
  double step_seconds = 0;   // median of steps that nobody observes
  // The same of steps that are recorded (worker/step_recorder.h), in turns with those.
  double recorded_seconds = 0;
  int64_t marks = 0;  // of a recorded step, each one reading of the clock
  // Medians of observed steps: what is left of the step without its nodes, and without what the
  // observer itself costs there.
  double rest_seconds = 0;
  double observer_seconds = 0;
  double overhead_seconds() const {
    return rest_seconds > observer_seconds ? rest_seconds - observer_seconds : 0;
  }
};

// Errors: as DeviceRun::Start.
Result<Overhead> MeasureOverhead(DeviceRunOptions options, int64_t steps);

}  // namespace meshwright::bench
