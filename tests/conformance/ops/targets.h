// What ops run on in these tests: the backends of the host, and a GPU that this process emulates or
// this machine has (tests/machine_gpu.h).
#pragma once

#include <vector>

#include "ops/kernel.h"

namespace meshwright::ops {

Target TestedGpu();

// The reference first, then the CPU, then the GPU.
std::vector<Target> AllTargets();

// Prepares and runs a kernel on tensors of the host; on a GPU they are copied there and back.
// in_place[i]: the input whose memory output i has, else -1; its bytes end in the output.
Status RunKernel(const Target& target, Kernel& kernel, RunContext context,
                 std::vector<HostTensor>& inputs, std::vector<HostTensor>& outputs,
                 const std::vector<int>& in_place = {});

}  // namespace meshwright::ops
