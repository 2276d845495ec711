// An SdpaGraph as a plan of cuDNN. For .cu files only.
//
// Thread rule: one thread at a time per target.
#pragma once

#include "ops/cuda/cudnn_graph.cuh"
#include "ops/cuda/sdpa_graph.h"

namespace meshwright::ops::cuda {

// The plan's memory has the values of SdpaName as ids. Errors: kUnimplemented: cuDNN has no kernel
// for it.
Result<CudnnPlan> PlanSdpa(const SdpaShape& shape, const CudnnTarget& target);

}  // namespace meshwright::ops::cuda
