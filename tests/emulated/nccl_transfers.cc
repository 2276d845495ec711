// Collectives and messages of the emulated NCCL.
#include <algorithm>
#include <cstring>

#include "collective/cpu/reduce.h"
#include "tests/emulated/nccl.h"
#include "tests/emulated/nccl_network.h"

namespace meshwright::emulated {
namespace {

using nccl::CommHandle;
using nccl::DataType;
using nccl::RedOp;
using nccl::Transfer;

ir::DType DTypeOf(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return ir::DType::kF32;
    case DataType::kFloat64:
      return ir::DType::kF64;
    case DataType::kBfloat16:
      return ir::DType::kBF16;
    case DataType::kFloat16:
      return ir::DType::kF16;
    case DataType::kInt32:
      return ir::DType::kI32;
    case DataType::kInt64:
      return ir::DType::kI64;
    default:
      return ir::DType::kBool;
  }
}

// `count` elements from `offset` bytes of each input, combined in list order.
void Reduce(const std::vector<Bytes>& inputs, size_t offset, int64_t count, DataType type,
            collective::Reduction reduction, std::byte* output) {
  const auto kernel = collective::FindReduceKernel(DTypeOf(type), reduction).value();
  collective::Accumulator accumulator(count * nccl::DataTypeBytes(type));
  for (size_t i = 0; i < inputs.size(); ++i) {
    accumulator.Add(kernel, inputs[i].data() + offset, count, i == 0);
  }
  accumulator.Store(kernel, output, count);
}

}  // namespace

// ---- Transfers ----------------------------------------------------------------------------------

nccl::Code EmulatedNccl::Launch(Network::Comm& comm, const Transfer& transfer, Work work) {
  auto* stream = static_cast<Stream*>(transfer.stream);
  const uint64_t ticket = network_.next_ticket_++;
  Network::Lane& lane =
      network_.lanes_[{comm.clique->family, {&stream->driver(), stream->device()}}];
  lane.push_back(ticket);
  comm.polls = transfer_polls_;
  const nccl::Code code =
      stream->Push([this, stream, &comm, &lane, ticket, work = std::move(work)] {
        const std::lock_guard<std::mutex> lock(network_.mutex_);
        const bool done = comm.aborted || (lane.front() == ticket && work());
        stream->WaitForPeers(!done);
        if (done) std::erase(lane, ticket);
        return done;
      }) == device::cuda::kSuccess
          ? nccl::Code::kInProgress
          : nccl::Code::kUnhandledCudaError;
  if (code != nccl::Code::kInProgress) return code;
  const bool done = transfer_polls_ == 0 && comm.linking.empty() && comm.connecting.empty();
  return done ? nccl::Code::kSuccess : Begin(comm);
}

nccl::Code EmulatedNccl::Collect(const char* name, Kind kind, const Transfer& transfer, RedOp op,
                                 int root) {
  const std::lock_guard<std::mutex> lock(network_.mutex_);
  const nccl::Code code = Enter(name, transfer.comm);
  if (code != nccl::Code::kSuccess) return code;
  auto& comm = *static_cast<Network::Comm*>(transfer.comm);
  const size_t size = comm.clique->members.size();
  const auto position = static_cast<size_t>(comm.position);
  const auto width = static_cast<size_t>(nccl::DataTypeBytes(transfer.type));
  const size_t block = transfer.count * width;
  const bool wide = kind == Kind::kReduceScatter || kind == Kind::kAllToAll;
  const size_t given = wide ? block * size : block;
  Network::Collective& all = comm.clique->collectives[++comm.collectives];
  if (comm.used.insert(name).second) comm.connecting.insert(name);
  all.inputs.resize(size);
  const std::string what = std::string(name) + " of " + std::to_string(transfer.count);
  if (!all.what.empty() && all.what != what) network_.Blame(all.what + " meets " + what);
  all.what = what;
  const auto reduction =
      op == RedOp::kMax ? collective::Reduction::kMax : collective::Reduction::kSum;
  return Launch(comm, transfer, [=, &all, begun = false]() mutable {
    if (!begun) {
      const auto* input = static_cast<const std::byte*>(transfer.input);
      all.inputs[position] = Bytes(input, input + given);
      ++all.arrived;
      begun = true;
    }
    if (all.arrived < static_cast<int>(size)) return false;
    auto* output = static_cast<std::byte*>(transfer.output);
    const auto count = static_cast<int64_t>(transfer.count);
    switch (kind) {
      case Kind::kAllReduce:
        Reduce(all.inputs, 0, count, transfer.type, reduction, output);
        break;
      case Kind::kReduceScatter:
        Reduce(all.inputs, position * block, count, transfer.type, reduction, output);
        break;
      case Kind::kBroadcast:
        std::memcpy(output, all.inputs[static_cast<size_t>(root)].data(), block);
        break;
      case Kind::kAllGather:
      case Kind::kAllToAll:
        for (size_t i = 0; i < size; ++i) {
          const size_t from = kind == Kind::kAllToAll ? position * block : 0;
          std::memcpy(output + i * block, all.inputs[i].data() + from, block);
        }
        break;
    }
    return true;
  });
}

nccl::Code EmulatedNccl::AllReduce(const Transfer& transfer, RedOp op) {
  return Collect("AllReduce", Kind::kAllReduce, transfer, op);
}

nccl::Code EmulatedNccl::AllGather(const Transfer& transfer) {
  return Collect("AllGather", Kind::kAllGather, transfer);
}

nccl::Code EmulatedNccl::ReduceScatter(const Transfer& transfer, RedOp op) {
  return Collect("ReduceScatter", Kind::kReduceScatter, transfer, op);
}

nccl::Code EmulatedNccl::AllToAll(const Transfer& transfer, int) {
  return Collect("AllToAll", Kind::kAllToAll, transfer);
}

nccl::Code EmulatedNccl::Broadcast(const Transfer& transfer, int root) {
  return Collect("Broadcast", Kind::kBroadcast, transfer, RedOp::kSum, root);
}

void EmulatedNccl::Use(Network::Comm& comm, std::pair<int, int> link) {
  if (comm.clique->links[link].insert(comm.position).second) comm.linking.insert(link);
}

nccl::Code EmulatedNccl::Exchange(const Transfer& transfer, int to, int from) {
  const std::lock_guard<std::mutex> lock(network_.mutex_);
  const nccl::Code code = Enter("Exchange", transfer.comm);
  if (code != nccl::Code::kSuccess) return code;
  auto& comm = *static_cast<Network::Comm*>(transfer.comm);
  const size_t bytes = transfer.count * static_cast<size_t>(nccl::DataTypeBytes(transfer.type));
  Network::Message& out = comm.clique->messages[{{comm.position, to}, ++comm.sent[to]}];
  Network::Message& in = comm.clique->messages[{{from, comm.position}, ++comm.received[from]}];
  Use(comm, {comm.position, to});
  Use(comm, {from, comm.position});
  return Launch(comm, transfer, [=, &out, &in, this] {
    if (!out.sent) {
      const auto* input = static_cast<const std::byte*>(transfer.input);
      out.data = Bytes(input, input + bytes);
      out.sent = true;
    }
    if (!in.sent) return false;
    if (in.data.size() != bytes) network_.Blame("Exchange of another length than was sent");
    std::memcpy(transfer.output, in.data.data(), std::min(bytes, in.data.size()));
    in.taken = true;
    in.data = Bytes();
    return true;
  });
}

nccl::Code EmulatedNccl::Send(const Transfer& transfer, int peer) {
  const std::lock_guard<std::mutex> lock(network_.mutex_);
  const nccl::Code code = Enter("Send", transfer.comm);
  if (code != nccl::Code::kSuccess) return code;
  auto& comm = *static_cast<Network::Comm*>(transfer.comm);
  const size_t bytes = transfer.count * static_cast<size_t>(nccl::DataTypeBytes(transfer.type));
  Network::Message& message = comm.clique->messages[{{comm.position, peer}, ++comm.sent[peer]}];
  Use(comm, {comm.position, peer});
  return Launch(comm, transfer, [=, &message] {
    if (!message.sent) {
      const auto* input = static_cast<const std::byte*>(transfer.input);
      message.data = Bytes(input, input + bytes);
      message.sent = true;
    }
    return message.taken;
  });
}

nccl::Code EmulatedNccl::Recv(const Transfer& transfer, int peer) {
  const std::lock_guard<std::mutex> lock(network_.mutex_);
  const nccl::Code code = Enter("Recv", transfer.comm);
  if (code != nccl::Code::kSuccess) return code;
  auto& comm = *static_cast<Network::Comm*>(transfer.comm);
  const size_t bytes = transfer.count * static_cast<size_t>(nccl::DataTypeBytes(transfer.type));
  Network::Message& message = comm.clique->messages[{{peer, comm.position}, ++comm.received[peer]}];
  Use(comm, {peer, comm.position});
  return Launch(comm, transfer, [=, &message, this] {
    if (!message.sent) return false;
    if (message.data.size() != bytes) network_.Blame("Recv of another length than was sent");
    std::memcpy(transfer.output, message.data.data(), std::min(bytes, message.data.size()));
    message.taken = true;
    message.data = Bytes();
    return true;
  });
}

}  // namespace meshwright::emulated
