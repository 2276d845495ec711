// Counts the allocations of this test binary, for promises of "no allocation here".
#pragma once

#include <cstdint>

namespace meshwright {

// Calls of operator new since the start, on all threads.
int64_t AllocationCount();

}  // namespace meshwright
