#include "collective/nccl/group.h"

#include <fmt/format.h>

#include <algorithm>

namespace meshwright::collective::nccl {

DataType DataTypeOf(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::kF32:
      return DataType::kFloat32;
    case ir::DType::kF64:
      return DataType::kFloat64;
    case ir::DType::kBF16:
      return DataType::kBfloat16;
    case ir::DType::kF16:
      return DataType::kFloat16;
    case ir::DType::kI32:
      return DataType::kInt32;
    case ir::DType::kI64:
      return DataType::kInt64;
    case ir::DType::kBool:
      break;
  }
  return DataType::kUint8;
}

int64_t BytesSent(const Operation& operation, int size, int position) {
  const int64_t bytes = operation.count * operation.element_bytes();
  switch (operation.kind) {
    case Kind::kAllReduce: {
      const auto [begin, end] = BlockRange(operation.count, size, position);
      const int64_t own = (end - begin) * operation.element_bytes();
      return bytes - own + (size - 1) * own;
    }
    case Kind::kAllGather:
    case Kind::kReduceScatter:
    case Kind::kAllToAll:
      return (size - 1) * bytes;
    case Kind::kRingShift:
      return bytes;
    case Kind::kBroadcast:
      return position == operation.root ? (size - 1) * bytes : 0;
    case Kind::kSendRecv:
      break;
  }
  return 0;
}

Status NcclGroup::CopyAlone(const Operation& operation) {
  return local_.queue->Copy(operation.output, operation.input,
                            operation.count * operation.element_bytes());
}

Status NcclGroup::Execute(const Operation& operation, int64_t* bytes_sent) {
  if (comm_ == nullptr) return FailedPrecondition("Connect() has not made its communicator yet");
  const bool combines = operation.reduces() && operation.reduction == Reduction::kLogSumExp;
  MW_TRY(combines ? PutLogSumExp(operation) : Put(operation));
  *bytes_sent += BytesSent(operation, size(), rank());
  return OkStatus();
}

Status NcclGroup::Put(const Operation& operation) {
  Library& nccl = context_.library;
  const RedOp op = operation.reduction == Reduction::kMax ? RedOp::kMax : RedOp::kSum;
  const auto call = [&](CommHandle comm) {
    const Transfer transfer{.input = operation.input,
                            .output = operation.output,
                            .count = static_cast<size_t>(operation.count),
                            .type = DataTypeOf(operation.dtype),
                            .comm = comm,
                            .stream = local_.queue->native()};
    switch (operation.kind) {
      case Kind::kAllReduce:
        return nccl.AllReduce(transfer, op);
      case Kind::kAllGather:
        return nccl.AllGather(transfer);
      case Kind::kReduceScatter:
        return nccl.ReduceScatter(transfer, op);
      case Kind::kAllToAll:
        return nccl.AllToAll(transfer, size());
      case Kind::kRingShift:
        return nccl.Exchange(transfer, Behind(operation), Before(operation));
      case Kind::kBroadcast:
        return nccl.Broadcast(transfer, operation.root);
      case Kind::kSendRecv:
        break;
    }
    return Code::kInvalidUsage;
  };
  const HostDeadline deadline =
      comm_->IsFirst(operation.kind) ? context_.FirstCallDeadline() : context_.OperationDeadline();
  return comm_->Call(KindName(operation.kind), call, deadline);
}

// All-reduce gathers everything everywhere; reduce-scatter sends block j to member j. Both then
// have the members' pieces in list order.
Status NcclGroup::PutLogSumExp(const Operation& operation) {
  const int64_t piece_bytes = operation.count * operation.element_bytes();
  MW_ASSIGN_OR_RETURN(std::byte* const pieces, Scratch(piece_bytes * size()));
  Operation gather = operation;
  gather.kind = operation.kind == Kind::kAllReduce ? Kind::kAllGather : Kind::kAllToAll;
  gather.output = pieces;
  MW_TRY(Put(gather));
  return combiner_.LogSumExp({.output = operation.output,
                              .pieces = pieces,
                              .count = operation.count,
                              .parts = size(),
                              .dtype = operation.dtype},
                             *local_.queue);
}

int64_t NcclGroup::ScratchBytes(Kind kind, int64_t count, ir::DType dtype,
                                Reduction reduction) const {
  const bool combines = kind == Kind::kAllReduce || kind == Kind::kReduceScatter;
  if (!combines || reduction != Reduction::kLogSumExp || size() == 1) return 0;
  return count * ir::DTypeBytes(dtype) * size();
}

void NcclGroup::Release(bool leak) {
  comm_ = nullptr;
  given_ = {nullptr, 0};
  if (leak) {
    for (auto& memory : scratch_) (void)memory.release();
  }
  scratch_.clear();
}

Result<std::byte*> NcclGroup::Scratch(int64_t bytes) {
  if (bytes <= given_.second) return given_.first;
  if (scratch_.empty() || scratch_.back()->bytes() < bytes) {
    const int64_t before = scratch_.empty() ? 0 : scratch_.back()->bytes();
    MW_ASSIGN_OR_RETURN(auto memory, local_.device->Allocate({ir::MemoryKind::kWorkspace,
                                                              std::max(bytes, 2 * before)}));
    scratch_.push_back(std::move(memory));
  }
  return scratch_.back()->data();
}

}  // namespace meshwright::collective::nccl
