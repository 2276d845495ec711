#include "tests/emulated/gpu.h"

#include "base/check.h"
#include "ops/cuda/kernels.h"

namespace meshwright::emulated {

EmulatedGpu::EmulatedGpu(EmulatedOptions options) : driver_(options) {
  auto made = device::cuda::CudaDevice::Make(driver_, 0, {.name = "cuda:0"});
  MW_CHECK(made.has_value()) << made.error().message();
  device_ = std::move(*made);
  const Status entered = device_->EnterThread();
  MW_CHECK(entered.ok()) << entered.message();
  libraries_.AddTo(toolkit_);
}

EmulatedGpu& SharedGpu() {
  static EmulatedGpu gpu;
  return gpu;
}

}  // namespace meshwright::emulated
