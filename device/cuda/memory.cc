#include "device/cuda/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace meshwright::device::cuda {
namespace {

// Runtime calls refuse or ignore empty allocations.
int64_t AtLeastOne(int64_t bytes) { return std::max<int64_t>(bytes, 1); }

// What was asked for, and what the GPU says is free.
Status OutOfMemory(Context& context, const Status& status, int64_t bytes) {
  if (status.code() != StatusCode::kResourceExhausted) return status;
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
  const Status read = context.Run("reading the free memory", [&] {
    return context.driver.ReadMemory(&free_bytes, &total_bytes);
  });
  if (!read.ok()) return status;
  return ResourceExhausted(
      fmt::format("{}: {} bytes asked for, {} of {} are free; another process may hold memory of "
                  "this GPU",
                  status.message(), bytes, free_bytes, total_bytes));
}

}  // namespace

Result<std::unique_ptr<Memory>> Arena::Make(std::shared_ptr<Context> context, const MemoryUse& use,
                                            std::shared_ptr<MemoryLedger> ledger) {
  std::unique_ptr<Arena> arena(new Arena(context, use, std::move(ledger)));
  const int64_t bytes = AtLeastOne(use.total());
  void* data = nullptr;
  const Status made =
      context->Run("allocating an arena", [&] { return context->driver.Allocate(&data, bytes); });
  if (!made.ok()) return Fail(OutOfMemory(*context, made, bytes));
  arena->data_ = static_cast<std::byte*>(data);
  MW_ASSIGN_OR_RETURN(const auto queue, CudaQueue::Make(context, false));
  MW_TRY(queue->Fill(data, std::byte{0}, bytes));
  const Status filled = queue->Finish(Deadline::After(kMemoryTimeoutMs));
  if (filled.code() == StatusCode::kDeadlineExceeded) arena->data_ = nullptr;  // freeing would wait
  MW_TRY(filled);
  return std::unique_ptr<Memory>(std::move(arena));
}

Arena::~Arena() {
  if (data_ != nullptr) {
    (void)context_->Run("releasing an arena", [&] { return context_->driver.Release(data_); });
  }
  ledger_->Release(use_);
}

Result<std::unique_ptr<Memory>> Pooled::Make(std::shared_ptr<Context> context, int64_t bytes,
                                             StreamHandle stream) {
  std::unique_ptr<Pooled> pooled(new Pooled(context, bytes, stream));
  const int64_t taken = AtLeastOne(bytes);
  void* data = nullptr;
  const Status made = context->Run("allocating from the pool", [&] {
    return context->driver.AllocateOrdered(&data, taken, stream);
  });
  if (!made.ok()) return Fail(OutOfMemory(*context, made, taken));
  pooled->data_ = static_cast<std::byte*>(data);
  MW_TRY(
      context->Run("filling memory", [&] { return context->driver.Fill(data, 0, taken, stream); }));
  return std::unique_ptr<Memory>(std::move(pooled));
}

Pooled::~Pooled() {
  if (data_ == nullptr) return;
  (void)context_->Run("releasing memory of the pool",
                      [&] { return context_->driver.ReleaseOrdered(data_, stream_); });
}

Result<std::unique_ptr<HostMemory>> PinnedMemory::Make(std::shared_ptr<Context> context,
                                                       int64_t bytes) {
  void* data = nullptr;
  MW_TRY(context->Run("pinning host memory",
                      [&] { return context->driver.AllocateHost(&data, AtLeastOne(bytes)); }));
  std::memset(data, 0, static_cast<size_t>(bytes));
  return std::unique_ptr<HostMemory>(
      new PinnedMemory(std::move(context), bytes, static_cast<std::byte*>(data)));
}

PinnedMemory::~PinnedMemory() {
  (void)context_->Run("releasing pinned memory",
                      [&] { return context_->driver.ReleaseHost(data_); });
}

}  // namespace meshwright::device::cuda
