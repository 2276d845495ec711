#include "collective/nccl/channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace meshwright::collective::nccl {

Status NcclChannel::Attach(Comm* comm) {
  MW_ASSIGN_OR_RETURN(wire_, local_.device->MakeQueue(true));
  MW_TRY(MakeSlots());
  comm_ = comm;
  return OkStatus();
}

Status NcclChannel::AddSlot(std::byte* data) {
  Slot slot;
  slot.data = data;
  MW_ASSIGN_OR_RETURN(slot.full, local_.device->MakeEvent());
  MW_ASSIGN_OR_RETURN(slot.empty, local_.device->MakeEvent());
  slots_.push_back(std::move(slot));
  return OkStatus();
}

Status NcclChannel::Drain(const HostDeadline& deadline, FunctionRef<Status()> interrupted) {
  return wire_ == nullptr ? OkStatus() : wire_->Finish(deadline, interrupted);
}

void NcclChannel::Release(bool leak) {
  comm_ = nullptr;
  if (leak) {
    (void)wire_.release();
    for (Slot& slot : slots_) {
      (void)slot.full.release();
      (void)slot.empty.release();
    }
  }
  wire_.reset();
  slots_.clear();
}

Status NcclChannel::Check(const void* data, int64_t bytes) const {
  if (bytes < 0 || (bytes > 0 && data == nullptr)) {
    return InvalidArgument(fmt::format("channel {}: {} bytes at a {} address", shape_.name, bytes,
                                       data == nullptr ? "null" : "valid"));
  }
  if (bytes > shape_.max_message_bytes) {
    return InvalidArgument(
        fmt::format("channel {}: message of {} bytes, the channel was made for "
                    "{}",
                    shape_.name, bytes, shape_.max_message_bytes));
  }
  return OkStatus();
}

Status NcclChannel::Run(const void* data, int64_t bytes, bool sends) {
  MW_TRY(Check(data, bytes));
  if (context_.fabric.latch.stopped()) return context_.fabric.latch.status();
  const auto start = std::chrono::steady_clock::now();
  Status status = comm_ == nullptr ? FailedPrecondition("Connect() has not made it yet") : Status();
  if (status.ok() && bytes > 0) {
    Slot& slot = slots_[static_cast<size_t>(messages_++) % slots_.size()];
    status = Move(slot, data, bytes);
    slot.used = true;
  }
  if (!status.ok()) {
    context_.fabric.abort(status.WithContext(fmt::format("channel {}", shape_.name)));
    return context_.fabric.latch.status();
  }
  counters_.Count(sends ? bytes : 0, std::chrono::steady_clock::now() - start);
  return OkStatus();
}

Status NcclChannel::Send(const void* data, int64_t bytes) { return Run(data, bytes, true); }

Status NcclChannel::Receive(void* data, int64_t bytes) { return Run(data, bytes, false); }

Status NcclSender::Receive(void* /*data*/, int64_t /*bytes*/) {
  return FailedPrecondition(fmt::format("channel {}: this is the sending end", name()));
}

Status NcclSender::MakeSlots() {
  const int64_t slot_bytes = device::AlignUp(std::max<int64_t>(1, shape().max_message_bytes));
  MW_ASSIGN_OR_RETURN(
      ring_, device().Allocate({ir::MemoryKind::kWorkspace, slot_bytes * shape().capacity}));
  for (int i = 0; i < shape().capacity; ++i) MW_TRY(AddSlot(ring_->data() + i * slot_bytes));
  return OkStatus();
}

void NcclSender::Release(bool leak) {
  NcclChannel::Release(leak);
  if (leak) (void)ring_.release();
  ring_.reset();
}

Status NcclSender::Move(Slot& slot, const void* data, int64_t bytes) {
  if (slot.used) MW_TRY(compute().WaitFor(*slot.empty));
  MW_TRY(compute().Copy(slot.data, data, bytes));
  MW_TRY(compute().Record(*slot.full));
  MW_TRY(wire().WaitFor(*slot.full));
  const auto send = [&](CommHandle handle) {
    return context().library.Send({.input = slot.data,
                                   .count = static_cast<size_t>(bytes),
                                   .type = DataType::kUint8,
                                   .comm = handle,
                                   .stream = wire().native()},
                                  1);
  };
  MW_TRY(comm().Call("ncclSend", send, context().OperationDeadline()));
  return wire().Record(*slot.empty);
}

Status NcclReceiver::Send(const void* /*data*/, int64_t /*bytes*/) {
  return FailedPrecondition(fmt::format("channel {}: this is the receiving end", name()));
}

Status NcclReceiver::Move(Slot& slot, const void* data, int64_t bytes) {
  MW_TRY(compute().Record(*slot.empty));
  MW_TRY(wire().WaitFor(*slot.empty));
  const auto receive = [&](CommHandle handle) {
    return context().library.Recv({.output = const_cast<void*>(data),
                                   .count = static_cast<size_t>(bytes),
                                   .type = DataType::kUint8,
                                   .comm = handle,
                                   .stream = wire().native()},
                                  0);
  };
  MW_TRY(comm().Call("ncclRecv", receive, context().OperationDeadline()));
  MW_TRY(wire().Record(*slot.full));
  return compute().WaitFor(*slot.full);
}

}  // namespace meshwright::collective::nccl
