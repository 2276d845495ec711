// How many cores of a host renew state for each of its GPUs (planner/host_update.h): plans price
// with as many as workers start. A handful takes most of what a memory's channels give; the rest is
// left to what feeds the GPUs.
//
// Thread rule: pure functions.
#pragma once

#include <algorithm>

namespace meshwright {

inline constexpr int kMostGpuHostThreads = 8;

// Of a host with so many cores, 0: not known, and so many GPUs.
constexpr int GpuHostThreads(int cores, int gpus) {
  return std::clamp(cores / std::max(1, gpus), 1, kMostGpuHostThreads);
}

}  // namespace meshwright
