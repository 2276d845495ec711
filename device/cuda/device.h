// The CUDA device: one GPU, used through one context of this process.
//
// Thread rule: as Device; description() and driver() from any thread. Ownership: the driver (of the
// plugin, or a test's) outlives it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/cuda/memory.h"
#include "device/device.h"

namespace meshwright::device::cuda {

class CudaDevice final : public Device {
 public:
  // options.threads and cpus are those of the thread that gives work to the GPU: one.
  static Result<std::unique_ptr<CudaDevice>> Make(Driver& driver, int32_t index,
                                                  DeviceOptions options);
  ~CudaDevice() override;

  Kind kind() const override { return Kind::kCuda; }
  const std::string& name() const override { return options_.name; }
  Result<std::unique_ptr<Memory>> Allocate(const MemoryUse& use) override;
  MemoryUse memory() const override { return ledger_->use(); }
  Result<std::unique_ptr<HostMemory>> AllocateHost(int64_t bytes) override;
  Status EnterThread() override;
  ThreadTeam* team() override { return nullptr; }
  Queue& queue() override { return *queue_; }
  Result<std::unique_ptr<Queue>> MakeQueue(bool urgent) override;
  Result<std::unique_ptr<Event>> MakeEvent() override;
  Status status() const override { return context_->errors.status(); }
  void GiveUp(const Status& cause) override { context_->errors.GiveUp(cause); }

  const Description& description() const { return description_; }
  Driver& driver() const { return context_->driver; }
  int32_t index() const { return context_->device; }
  // For calls of libraries that return codes of the runtime.
  Context& context() const { return *context_; }
  // Zeroed memory of the pool, in the order of queue(); not part of memory().
  Result<std::unique_ptr<Memory>> AllocatePooled(int64_t bytes);

 private:
  CudaDevice(std::shared_ptr<Context> context, const Description& description,
             DeviceOptions options)
      : context_(std::move(context)),
        description_(description),
        options_(std::move(options)),
        ledger_(std::make_shared<MemoryLedger>(options_.memory_limit_bytes)) {}

  const std::shared_ptr<Context> context_;
  const Description description_;
  const DeviceOptions options_;
  const std::shared_ptr<MemoryLedger> ledger_;
  std::unique_ptr<CudaQueue> queue_;
};

}  // namespace meshwright::device::cuda
