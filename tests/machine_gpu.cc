#include "tests/machine_gpu.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "device/cuda/plugin.h"

namespace meshwright::machine {
namespace {

class NeedsGpus final : public ::testing::Environment {
 public:
  void SetUp() override {
    if (!OnMachineGpus() || MachineGpus().has_value()) return;
    GTEST_SKIP() << "no GPU: " << MachineGpus().error().message();
  }
};

}  // namespace

bool OnMachineGpus() {
  const char* const where = std::getenv("MESHWRIGHT_TEST_GPU");
  return where != nullptr && std::string_view(where) == "machine";
}

const Result<worker::Gpus>& MachineGpus() {
  static const Result<worker::Gpus> gpus = worker::FindGpus(0, {});
  return gpus;
}

ops::Target FirstMachineGpu() {
  const worker::Gpus& gpus = *MachineGpus();
  static const std::unique_ptr<device::cuda::CudaDevice> device =
      device::cuda::CudaDevice::Make(*gpus.driver, gpus.indices[0], {.name = "cuda:0"}).value();
  (void)device->EnterThread();
  return {*device, *gpus.toolkit};
}

std::string WhyNotOnMachine(int gpus) {
  if (!OnMachineGpus() || static_cast<int>(MachineGpus()->indices.size()) >= gpus) return "";
  return fmt::format("needs {} GPUs, this machine has {}", gpus, MachineGpus()->indices.size());
}

bool SkipWithoutMachineGpus() {
  ::testing::AddGlobalTestEnvironment(new NeedsGpus);
  return true;
}

}  // namespace meshwright::machine
