// EmulatedGpu: a CUDA device of this process with our own kernels and emulated libraries, as a
// target of ops.
//
// Thread rule: as CudaDevice; the thread that makes it is the device's own.
#pragma once

#include <memory>

#include "device/cuda/device.h"
#include "ops/cuda/toolkit.h"
#include "ops/kernel.h"
#include "tests/emulated/driver.h"
#include "tests/emulated/libraries.h"

namespace meshwright::emulated {

class EmulatedGpu {
 public:
  explicit EmulatedGpu(EmulatedOptions options = {});

  EmulatedDriver& driver() { return driver_; }
  device::cuda::CudaDevice& device() { return *device_; }
  ops::cuda::Toolkit& toolkit() { return toolkit_; }
  ops::Target target() { return {*device_, toolkit_}; }

 private:
  EmulatedDriver driver_;
  std::unique_ptr<device::cuda::CudaDevice> device_;
  EmulatedLibraries libraries_;
  ops::cuda::Toolkit toolkit_;
};

// One that the tests of a process share. Nothing of it is kept from one test to the next.
EmulatedGpu& SharedGpu();

}  // namespace meshwright::emulated
