// Memory of a GPU and the host's memory that it reaches.
//
// An arena is one allocation for as long as a job runs. What is needed for less comes from the
// device's pool, in the order of a stream; steps need nothing from there. Allocations start at
// kAlignmentBytes and are zeroed.
//
// Thread rule: immutable after construction.
#pragma once

#include <memory>

#include "device/cuda/queue.h"
#include "device/device.h"

namespace meshwright::device::cuda {

// Of filling an arena: 100 GB at a tenth of the slowest GPU's bandwidth.
inline constexpr int64_t kMemoryTimeoutMs = 60'000;

class Arena final : public Memory {
 public:
  // REQUIRES use charged to the ledger; released when the arena is destroyed, or here on failure.
  // Errors: kResourceExhausted with the bytes asked for and free.
  static Result<std::unique_ptr<Memory>> Make(std::shared_ptr<Context> context,
                                              const MemoryUse& use,
                                              std::shared_ptr<MemoryLedger> ledger);
  ~Arena() override;
  std::byte* data() const override { return data_; }
  int64_t bytes() const override { return use_.total(); }
  const SharedHandle* shared() const override { return nullptr; }

 private:
  Arena(std::shared_ptr<Context> context, const MemoryUse& use,
        std::shared_ptr<MemoryLedger> ledger)
      : context_(std::move(context)), use_(use), ledger_(std::move(ledger)) {}

  const std::shared_ptr<Context> context_;
  const MemoryUse use_;
  const std::shared_ptr<MemoryLedger> ledger_;
  std::byte* data_ = nullptr;
};

// From the pool, in the order of `queue`, which outlives it.
class Pooled final : public Memory {
 public:
  static Result<std::unique_ptr<Memory>> Make(std::shared_ptr<Context> context, int64_t bytes,
                                              StreamHandle stream);
  ~Pooled() override;
  std::byte* data() const override { return data_; }
  int64_t bytes() const override { return bytes_; }
  const SharedHandle* shared() const override { return nullptr; }

 private:
  Pooled(std::shared_ptr<Context> context, int64_t bytes, StreamHandle stream)
      : context_(std::move(context)), bytes_(bytes), stream_(stream) {}

  const std::shared_ptr<Context> context_;
  const int64_t bytes_;
  const StreamHandle stream_;
  std::byte* data_ = nullptr;
};

class PinnedMemory final : public HostMemory {
 public:
  static Result<std::unique_ptr<HostMemory>> Make(std::shared_ptr<Context> context, int64_t bytes);
  ~PinnedMemory() override;
  std::byte* data() const override { return data_; }
  int64_t bytes() const override { return bytes_; }

 private:
  PinnedMemory(std::shared_ptr<Context> context, int64_t bytes, std::byte* data)
      : context_(std::move(context)), bytes_(bytes), data_(data) {}

  const std::shared_ptr<Context> context_;
  const int64_t bytes_;
  std::byte* const data_;
};

}  // namespace meshwright::device::cuda
