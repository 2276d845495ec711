// The GPUs of this machine in the place of emulated ones: $MESHWRIGHT_TEST_GPU=machine, which
// `ctest -L gpu` and tools/gpu-check set. Where there is none, a program that includes this skips
// all its tests and says why.
//
// Thread rule: the test's thread.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "device/cuda/device.h"
#include "ops/kernel.h"
#include "worker/gpus.h"

namespace meshwright::machine {

bool OnMachineGpus();

// All of them, or why there are none; looked for once.
const Result<worker::Gpus>& MachineGpus();

// The first of them, as a device that lives as long as the process. REQUIRES that there is one.
ops::Target FirstMachineGpu();

// "" where a test can have so many.
std::string WhyNotOnMachine(int gpus);

// For tests of more GPUs than the machine may have, and those that ask an emulated one what it did.
#define MW_NEEDS_GPUS(count)                                                               \
  if (const std::string why = ::meshwright::machine::WhyNotOnMachine(count); !why.empty()) \
  GTEST_SKIP() << why
#define MW_NEEDS_EMULATION() \
  if (::meshwright::machine::OnMachineGpus()) GTEST_SKIP() << "asks the emulated driver"

// Of the inclusion alone.
bool SkipWithoutMachineGpus();
inline const bool kSkipsWithoutMachineGpus = SkipWithoutMachineGpus();

}  // namespace meshwright::machine
