// The GPUs of this machine, as far as a worker may use them: found once per process.
//
// Thread rule: thread-safe. Ownership: what it points at lives as long as the process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "collective/nccl/combine.h"
#include "collective/nccl/library.h"
#include "device/cuda/plugin.h"
#include "ops/cuda/toolkit.h"
#include "worker/gpu_claims.h"

namespace meshwright::worker {

struct Gpus {
  device::cuda::Driver* driver = nullptr;  // null: none are used
  ops::cuda::Toolkit* toolkit = nullptr;
  ops::cuda::Toolkit* tf32_toolkit = nullptr;  // the same, with f32 products in 19 bits
  collective::nccl::Library* nccl = nullptr;   // null: meshes of one GPU only
  std::string no_nccl;                         // why, in one line
  collective::nccl::Combiner* combiner = nullptr;
  std::vector<int> indices;                 // by local device
  std::string name;                         // of the first, "NVIDIA H200"
  int64_t memory_bytes = 0;                 // that a job may use of each: of the smallest
  std::shared_ptr<const GpuClaims> claims;  // null: not claimed
};

// The GPUs `which`; none named: the first `count`, 0: all. Errors: kUnavailable: why there are
// none or one is too old, in one line; kInvalidArgument when there are fewer.
Result<Gpus> FindGpus(int count, std::vector<int> which);

// The same of those that no other worker of this machine has, and claims them. Errors: also those
// of GpuClaims::Take().
Result<Gpus> ClaimGpus(int count, const std::vector<int>& which);

}  // namespace meshwright::worker
