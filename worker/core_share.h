// How much of its cores this process gets beside what else runs on them.
//
// Thread rule: one call at a time; starts and joins threads of its own.
#pragma once

#include "base/clock.h"

namespace meshwright::worker {

// As many threads as a device has compute for a third of a second: their CPU time over the wall
// time, in (0, 1]. 1: nobody else wants the cores. Not over all of the machine: over the cores that
// the process may use.
double MeasureCoreShare(int threads, const Clock& clock);

}  // namespace meshwright::worker
