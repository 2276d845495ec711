#include "collective/cpu/group_base.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace meshwright::collective {
namespace {

const std::byte* Bytes(const void* data) { return static_cast<const std::byte*>(data); }
std::byte* Bytes(void* data) { return static_cast<std::byte*>(data); }

}  // namespace

void CounterCell::Count(int64_t bytes, std::chrono::nanoseconds elapsed) {
  calls_.fetch_add(1, std::memory_order_relaxed);
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
  nanoseconds_.fetch_add(elapsed.count(), std::memory_order_relaxed);
}

Counters CounterCell::Read() const {
  return {calls_.load(std::memory_order_relaxed), bytes_.load(std::memory_order_relaxed),
          static_cast<double>(nanoseconds_.load(std::memory_order_relaxed)) * 1e-9};
}

std::pair<int64_t, int64_t> BlockRange(int64_t count, int parts, int index) {
  const int64_t block = (count + parts - 1) / parts;
  return {std::min(count, block * index), std::min(count, block * (index + 1))};
}

GroupBase::GroupBase(std::string name, std::vector<int> ranks, int position,
                     const FabricContext& context)
    : name_(std::move(name)), ranks_(std::move(ranks)), position_(position), context_(context) {}

Status GroupBase::AllReduce(void* data, int64_t count, ir::DType dtype, Reduction reduction) {
  MW_ASSIGN_OR_RETURN(const ReduceKernel kernel, FindReduceKernel(dtype, reduction));
  return Run({.kind = Kind::kAllReduce,
              .input = Bytes(data),
              .output = Bytes(data),
              .count = count,
              .dtype = dtype,
              .reduction = reduction,
              .kernel = kernel});
}

Status GroupBase::AllGather(const void* input, void* output, int64_t count, ir::DType dtype) {
  return Run({.kind = Kind::kAllGather,
              .input = Bytes(input),
              .output = Bytes(output),
              .count = count,
              .dtype = dtype});
}

Status GroupBase::ReduceScatter(const void* input, void* output, int64_t count, ir::DType dtype,
                                Reduction reduction) {
  MW_ASSIGN_OR_RETURN(const ReduceKernel kernel, FindReduceKernel(dtype, reduction));
  return Run({.kind = Kind::kReduceScatter,
              .input = Bytes(input),
              .output = Bytes(output),
              .count = count,
              .dtype = dtype,
              .reduction = reduction,
              .kernel = kernel});
}

Status GroupBase::AllToAll(const void* input, void* output, int64_t count, ir::DType dtype) {
  return Run({.kind = Kind::kAllToAll,
              .input = Bytes(input),
              .output = Bytes(output),
              .count = count,
              .dtype = dtype});
}

Status GroupBase::RingShift(const void* input, void* output, int64_t count, ir::DType dtype,
                            int by) {
  if (size() > 1 && (by <= 0 || by >= size())) {
    return InvalidArgument(
        fmt::format("ring_shift on group {}: {} positions of {}", name_, by, size()));
  }
  return Run({.kind = Kind::kRingShift,
              .input = Bytes(input),
              .output = Bytes(output),
              .count = count,
              .dtype = dtype,
              .root = size() > 1 ? by : 0});
}

Status GroupBase::Broadcast(void* data, int64_t count, ir::DType dtype, int root) {
  return Run({.kind = Kind::kBroadcast,
              .input = Bytes(data),
              .output = Bytes(data),
              .count = count,
              .dtype = dtype,
              .root = root});
}

Status GroupBase::Check(const Operation& operation) const {
  const char* kind = KindName(operation.kind);
  if (operation.count < 0 ||
      operation.count >
          (int64_t{1} << 58) / size()) {  // size() * count * 8 bytes must not overflow
    return InvalidArgument(
        fmt::format("{} on group {}: count is {}", kind, name_, operation.count));
  }
  if (operation.count > 0 && (operation.input == nullptr || operation.output == nullptr)) {
    return InvalidArgument(fmt::format("{} on group {}: null data", kind, name_));
  }
  if (operation.root < 0 || operation.root >= size()) {
    return InvalidArgument(fmt::format("{} on group {}: root {} is not a position in 0..{}", kind,
                                       name_, operation.root, size() - 1));
  }
  return OkStatus();
}

Status GroupBase::CopyAlone(const Operation& operation) {
  std::memmove(operation.output, operation.input,
               static_cast<size_t>(operation.count * operation.element_bytes()));
  return OkStatus();
}

Status GroupBase::Run(Operation operation) {
  MW_TRY(Check(operation));
  if (context_.latch.stopped()) {
    return context_.latch.status();
  }
  const auto start = std::chrono::steady_clock::now();
  operation.sequence = ++sequence_;
  operation.deadline = context_.OperationDeadline();
  int64_t bytes_sent = 0;
  const bool alone = size() == 1;
  if (operation.count > 0 && !(alone && operation.input == operation.output)) {
    const Status status = alone ? CopyAlone(operation) : Execute(operation, &bytes_sent);
    if (!status.ok()) {
      context_.abort(status.WithContext(
          fmt::format("{} #{} on group {}", KindName(operation.kind), operation.sequence, name_)));
      AfterAbort();
      return context_.latch.status();
    }
  }
  counters_[static_cast<size_t>(operation.kind)].Count(bytes_sent,
                                                       std::chrono::steady_clock::now() - start);
  return OkStatus();
}

}  // namespace meshwright::collective
