// ChainSource: a ChainPlan as the text of one CUDA kernel, and the arguments of its launches.
//
// Sizes, addresses, scalars and places in a global tensor are arguments, so that equal chains over
// tensors of different sizes are one text. Without column sums threads stride over the elements;
// with them a thread owns some columns and the rows of a group and writes the group's sums, which
// Kernels::ReduceSum adds up: always in the same order.
//
// All arguments are fields of eight bytes of one struct, in the order in which ChainArguments
// writes them. Thread rule: pure functions. Text is equal for equal plans.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ops/cuda/chain_plan.h"

namespace meshwright::ops::cuda {

// With the kernel "chain".
std::string ChainSource(const ChainPlan& plan);

struct ChainMemory {
  Inputs inputs;
  Outputs outputs;
  const void* accumulator = nullptr;
  float* sums = nullptr;  // [sums of the plan, groups, width]
  const StepState* state = nullptr;
};
// Replaces what is in `words`; allocates no more than the first time.
void ChainArguments(const ChainPlan& plan, const ChainMemory& memory, int32_t microbatch,
                    std::vector<uint64_t>& words);

// Threads that the kernel has work for.
int64_t ChainThreads(const ChainPlan& plan);

}  // namespace meshwright::ops::cuda
