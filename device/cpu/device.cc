// The virtual CPU device.
#include "device/device.h"

#include <fmt/format.h>
#include <sched.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "device/cpu/memory.h"
#include "device/cpu/queue.h"

namespace meshwright::device {
namespace {

class CpuMemory final : public Memory {
 public:
  CpuMemory(Mapping mapping, MemoryUse use, std::shared_ptr<MemoryLedger> ledger)
      : mapping_(std::move(mapping)), use_(use), ledger_(std::move(ledger)) {}
  ~CpuMemory() override { ledger_->Release(use_); }

  std::byte* data() const override { return mapping_.data(); }
  int64_t bytes() const override { return use_.total(); }
  const SharedHandle* shared() const override { return mapping_.shared(); }

 private:
  Mapping mapping_;
  const MemoryUse use_;
  const std::shared_ptr<MemoryLedger> ledger_;
};

class CpuHostMemory final : public HostMemory {
 public:
  CpuHostMemory(Mapping mapping, int64_t bytes) : bytes_(bytes), mapping_(std::move(mapping)) {}
  std::byte* data() const override { return mapping_.data(); }
  int64_t bytes() const override { return bytes_; }

 private:
  const int64_t bytes_;
  const Mapping mapping_;
};

// Pins the calling thread. Errors: kInvalidArgument naming the core.
Status PinToCore(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  if (sched_setaffinity(0, sizeof(set), &set) == 0) return OkStatus();
  return InvalidArgument(
      fmt::format("pinning to core {}: {}; choose a core that this process may use", cpu,
                  std::strerror(errno)));
}

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(DeviceOptions options)
      : options_(std::move(options)),
        ledger_(std::make_shared<MemoryLedger>(options_.memory_limit_bytes)) {}

  Kind kind() const override { return Kind::kCpu; }
  const std::string& name() const override { return options_.name; }

  Result<std::unique_ptr<Memory>> Allocate(const MemoryUse& use) override {
    if (Status status = ledger_->Charge(use); !status.ok()) {
      return Fail(status.WithContext(options_.name));
    }
    Result<Mapping> mapping = MakeMapping(use.total());
    if (!mapping.has_value()) {
      ledger_->Release(use);
      return Fail(mapping.error().WithContext(options_.name));
    }
    return std::unique_ptr<Memory>(std::make_unique<CpuMemory>(std::move(*mapping), use, ledger_));
  }

  MemoryUse memory() const override { return ledger_->use(); }

  Result<std::unique_ptr<HostMemory>> AllocateHost(int64_t bytes) override {
    Result<Mapping> mapping = Mapping::Make(bytes);
    if (!mapping.has_value()) return Fail(mapping.error().WithContext(options_.name));
    return std::unique_ptr<HostMemory>(std::make_unique<CpuHostMemory>(std::move(*mapping), bytes));
  }

  int64_t host_link_bytes_per_s() const override { return options_.host_link_bytes_per_s; }

  Status EnterThread() override {
    if (!options_.cpus.empty()) {
      MW_TRY(PinToCore(options_.cpus[0]).WithContext(options_.name));
    }
    if (options_.threads > 1 && team_ == nullptr) {
      team_ = std::make_unique<ThreadTeam>(options_.threads, options_.cpus);
    }
    return OkStatus();
  }

  ThreadTeam* team() override { return team_.get(); }

  Queue& queue() override { return queue_; }
  Result<std::unique_ptr<Queue>> MakeQueue(bool) override {
    return std::unique_ptr<Queue>(std::make_unique<CpuQueue>());
  }
  Result<std::unique_ptr<Event>> MakeEvent() override { return std::make_unique<Event>(); }

  Status status() const override { return OkStatus(); }

 private:
  Result<Mapping> MakeMapping(int64_t bytes) const {
    if (options_.share_memory) {
      Result<Mapping> shared = Mapping::MakeShared(bytes);
      if (shared.has_value()) return shared;
    }
    return Mapping::Make(bytes);
  }

  const DeviceOptions options_;
  const std::shared_ptr<MemoryLedger> ledger_;
  std::unique_ptr<ThreadTeam> team_;
  CpuQueue queue_;
};

}  // namespace

const char* KindName(Kind kind) { return kind == Kind::kCuda ? "cuda" : "cpu"; }

Result<std::unique_ptr<Device>> MakeCpuDevice(DeviceOptions options) {
  if (options.threads < 1) {
    return Fail(InvalidArgument(fmt::format("device {}: {} threads; at least one is needed",
                                            options.name, options.threads)));
  }
  if (!options.cpus.empty() && options.cpus.size() != static_cast<size_t>(options.threads)) {
    return Fail(InvalidArgument(
        fmt::format("device {}: {} cores to pin {} threads to; give one per thread or none",
                    options.name, options.cpus.size(), options.threads)));
  }
  for (int cpu : options.cpus) {
    if (cpu < 0 || cpu >= CPU_SETSIZE) {
      return Fail(InvalidArgument(
          fmt::format("device {}: core {} is not in [0, {})", options.name, cpu, CPU_SETSIZE)));
    }
  }
  return std::unique_ptr<Device>(std::make_unique<CpuDevice>(std::move(options)));
}

}  // namespace meshwright::device
