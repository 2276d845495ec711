// Independent items on the threads of this machine.
//
// Thread rule: any thread; starts and joins threads of its own.
#pragma once

#include <cstdint>

#include "base/function_ref.h"

namespace meshwright {

// Calls body(i) once for each i in [0, count), on no more threads than have `least_per_thread`
// items each, and returns when all are done; the caller works too. What the bodies wrote is visible
// to the caller. What one throws is thrown to the caller when all threads are done, as a loop would
// on its own; items behind it may be left out. REQUIRES: least_per_thread >= 1.
void ParallelItems(int64_t count, int64_t least_per_thread, FunctionRef<void(int64_t item)> body);

}  // namespace meshwright
