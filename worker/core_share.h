// How much of its cores this process gets beside what else runs on them.
//
// Thread rule: MeasureCoreShare one call at a time, it starts and joins threads of its own;
// CoreMeter thread-safe.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace meshwright::worker {

// What the system counts.
class CoreMeter {
 public:
  virtual ~CoreMeter() = default;
  // Nanoseconds for which the calling thread has had a core.
  virtual int64_t ThreadNs() const = 0;
  // How often another thread was given the core, from the calling thread or from any of the
  // process.
  virtual int64_t ThreadInterruptions() const = 0;
  virtual int64_t ProcessInterruptions() const = 0;
};
// Lives for the whole process.
const CoreMeter& SystemCoreMeter();

// As many threads as a device has compute for a third of a second: their CPU time over the wall
// time, in (0, 1]. 1: nobody else wants the cores. Not over all of the machine: over the cores that
// the process may use.
double MeasureCoreShare(int threads, const Clock& clock);

}  // namespace meshwright::worker
