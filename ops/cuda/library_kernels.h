// Generated code for chains. Internal to ops/cuda.
//
// Each returns null when it does not take the node: another kernel, or the steps of a fused node
// one by one, are then meant. Thread rule: pure construction.
#pragma once

#include "device/cuda/device.h"
#include "ops/cuda/toolkit.h"
#include "ops/kernel_spec.h"

namespace meshwright::ops::cuda {

using device::cuda::CudaDevice;

// A node alone as the body of a fused node, operand i its operand i.
Result<ir::Graph> BodyOf(const KernelSpec& spec);
// A kernel for a chain without producer.
KernelResult MakePlainChain(const ir::Graph& body, const DeviceCoords& coords, CudaDevice& device,
                            Toolkit& toolkit);

}  // namespace meshwright::ops::cuda
