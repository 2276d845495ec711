// What a job may ask that GPUs do not compute: such jobs run on CPU devices.
//
// Thread rule: pure functions.
#pragma once

#include <string>

#include "ir/graph.h"

namespace meshwright::ir {

// Elements of a head of attention that kernels of GPUs take at most.
inline constexpr int64_t kMostGpuHeadElements = 256;

// Whether GPUs have kernels for the op.
bool RunsOnGpus(Op op);

// "" when GPUs compute all of the graph; else what they do not.
std::string WhyNotOnGpus(const Graph& graph);

}  // namespace meshwright::ir
