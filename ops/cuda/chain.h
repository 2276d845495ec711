// ChainRunner: a chain as a loaded kernel, and what puts it into a queue.
//
// Thread rule: one Run() at a time. Ownership: device and toolkit outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/cuda/device.h"
#include "ops/cuda/chain_source.h"
#include "ops/cuda/code_cache.h"
#include "ops/cuda/toolkit.h"

namespace meshwright::ops::cuda {

class ChainRunner {
 public:
  // Errors: the code cache's.
  static Result<ChainRunner> Make(ChainPlan plan, device::cuda::CudaDevice& device,
                                  Toolkit& toolkit);

  const ChainPlan& plan() const { return plan_; }
  int64_t scratch_bytes() const;  // of column sums
  // `scratch`: of scratch_bytes(), aligned. `accumulator`: what the producer made.
  Status Run(const RunContext& context, Inputs inputs, Outputs outputs, const void* accumulator,
             std::byte* scratch);

 private:
  ChainRunner(ChainPlan plan, device::cuda::CudaDevice& device, Toolkit& toolkit)
      : plan_(std::move(plan)),
        device_(&device),
        compiler_(&toolkit.code->compiler()),
        kernels_(toolkit.kernels) {}

  // Of one column sum: [groups, width].
  int64_t PartialFloats() const { return plan_.groups() * plan_.width; }
  Status LaunchChain(const RunContext& context);
  // Adds up the groups of a sum into its result.
  Status Fold(const RunContext& context, const ChainPlan::Result& sum, float* partial, void* out);

  ChainPlan plan_;
  device::cuda::CudaDevice* device_;
  Compiler* compiler_;
  Kernels* kernels_;
  std::shared_ptr<const KernelCode> code_;
  FunctionHandle chain_ = nullptr;
  std::vector<uint64_t> words_;
};

// The source of generated text for a device.
SourceCode CodeFor(const device::cuda::CudaDevice& device, std::string text);

}  // namespace meshwright::ops::cuda
