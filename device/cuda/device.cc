#include "device/cuda/device.h"

#include <fmt/format.h>

#include <utility>

namespace meshwright::device::cuda {

Result<std::unique_ptr<CudaDevice>> CudaDevice::Make(Driver& driver, int32_t index,
                                                     DeviceOptions options) {
  auto context = std::make_shared<Context>(driver, index, options.name);
  Description description;
  MW_TRY(
      context->Run("describing the device", [&] { return driver.Describe(index, &description); }));
  std::unique_ptr<CudaDevice> device(
      new CudaDevice(std::move(context), description, std::move(options)));
  MW_ASSIGN_OR_RETURN(device->queue_, CudaQueue::Make(device->context_, false));
  return device;
}

CudaDevice::~CudaDevice() = default;

Result<std::unique_ptr<Memory>> CudaDevice::Allocate(const MemoryUse& use) {
  if (Status status = ledger_->Charge(use); !status.ok()) {
    return Fail(status.WithContext(name()));
  }
  return Arena::Make(context_, use, ledger_);
}

Result<std::unique_ptr<HostMemory>> CudaDevice::AllocateHost(int64_t bytes) {
  return PinnedMemory::Make(context_, bytes);
}

Status CudaDevice::EnterThread() {
  return context_->Run("entering the device's thread", [] { return kSuccess; });
}

Result<std::unique_ptr<Queue>> CudaDevice::MakeQueue(bool urgent) {
  return CudaQueue::Make(context_, urgent);
}

Result<std::unique_ptr<Event>> CudaDevice::MakeEvent() { return CudaEvent::Make(context_); }

Result<std::unique_ptr<Memory>> CudaDevice::AllocatePooled(int64_t bytes) {
  return Pooled::Make(context_, bytes, queue_->native());
}

}  // namespace meshwright::device::cuda
