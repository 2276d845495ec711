#include "collective/cpu/pipe_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace meshwright::collective {
namespace {

constexpr int64_t kChunkBytes = kGroupPipeShape.slot_bytes;
static_assert(kChunkBytes % 8 == 0);  // whole elements of every dtype

// [63..8] sequence, [7..1] kind, [0] phase: a member in another call is found out at its first
// message.
uint64_t Tag(const Operation& operation, int phase) {
  return operation.sequence << 8 | static_cast<uint64_t>(operation.kind) << 1 |
         static_cast<uint64_t>(phase);
}

std::string DescribeTag(uint64_t tag) {
  const uint64_t kind = tag >> 1 & 0x7f;
  return fmt::format("{} #{}", kind < kKindCount ? KindName(static_cast<Kind>(kind)) : "unknown",
                     tag >> 8);
}

// Of `total` bytes, how many are in the chunk at `offset`.
int64_t ChunkAt(int64_t offset, int64_t total) {
  return std::clamp<int64_t>(total - offset, 0, kChunkBytes);
}

}  // namespace

PipeGroup::PipeGroup(std::string name, std::vector<int> group_ranks, int position,
                     const FabricContext& fabric)
    : GroupBase(std::move(name), std::move(group_ranks), position, fabric),
      peers_(static_cast<size_t>(size())),
      legs_(static_cast<size_t>(size())),
      accumulator_(kChunkBytes) {
  for (int i = 0; i < size(); ++i) {
    if (i != rank()) {
      const int peer = ranks()[static_cast<size_t>(i)];
      const std::string pipe_name = fmt::format("group {}", this->name());
      peers_[static_cast<size_t>(i)] = {std::make_unique<PipeSender>(pipe_name, peer, context()),
                                        std::make_unique<PipeReceiver>(pipe_name, peer, context())};
    }
  }
}

Status PipeGroup::Execute(const Operation& operation, int64_t* bytes_sent) {
  switch (operation.kind) {
    case Kind::kAllReduce:
      return AllReducePhases(operation, bytes_sent);
    case Kind::kReduceScatter:
      return ReduceScatterPhase(operation, bytes_sent);
    case Kind::kAllGather:
    case Kind::kAllToAll:
    case Kind::kRingShift:
    case Kind::kBroadcast:
      FillLegs(operation);
      return Exchange(operation, 0, nullptr, bytes_sent);
    case Kind::kSendRecv:
      break;
  }
  return Internal("not a group operation");
}

Status PipeGroup::ReduceScatterPhase(const Operation& operation, int64_t* bytes_sent) {
  const int64_t block_bytes = operation.count * operation.element_bytes();
  for (int i = 0; i < size(); ++i) {
    legs_[static_cast<size_t>(i)] = {operation.input + i * block_bytes, block_bytes, nullptr,
                                     block_bytes};
  }
  const Combine combine{operation.input + rank() * block_bytes, operation.output, block_bytes};
  return Exchange(operation, 0, &combine, bytes_sent);
}

Status PipeGroup::AllReducePhases(const Operation& operation, int64_t* bytes_sent) {
  const int64_t width = operation.element_bytes();
  const auto [own_begin, own_end] = BlockRange(operation.count, size(), rank());
  std::byte* own_block = operation.output + own_begin * width;
  const int64_t own_bytes = (own_end - own_begin) * width;
  for (int i = 0; i < size(); ++i) {
    const auto [begin, end] = BlockRange(operation.count, size(), i);
    legs_[static_cast<size_t>(i)] = {operation.output + begin * width, (end - begin) * width,
                                     nullptr, own_bytes};
  }
  const Combine combine{own_block, own_block, own_bytes};
  MW_TRY(Exchange(operation, 0, &combine, bytes_sent));

  for (Leg& leg : legs_) {  // phase 2 sends the combined block where phase 1 got its pieces from
    leg = {own_block, own_bytes, const_cast<std::byte*>(leg.out), leg.out_bytes};
  }
  return Exchange(operation, 1, nullptr, bytes_sent);
}

void PipeGroup::FillLegs(const Operation& operation) {
  const int64_t block_bytes = operation.count * operation.element_bytes();
  const bool all_to_all = operation.kind == Kind::kAllToAll;
  for (int i = 0; i < size(); ++i) {
    Leg& leg = legs_[static_cast<size_t>(i)];
    if (operation.kind == Kind::kBroadcast) {
      leg = {operation.input, rank() == operation.root ? block_bytes : 0, operation.output,
             i == operation.root ? block_bytes : 0};
    } else if (operation.kind == Kind::kRingShift) {
      leg = {operation.input, i == Behind(operation) ? block_bytes : 0, operation.output,
             i == Before(operation) ? block_bytes : 0};
    } else {
      leg = {operation.input + (all_to_all ? i * block_bytes : 0), block_bytes,
             operation.output + i * block_bytes, block_bytes};
    }
  }
  if (operation.kind == Kind::kAllGather || all_to_all) {
    const Leg& own = legs_[static_cast<size_t>(rank())];
    std::memmove(own.in, own.out, static_cast<size_t>(block_bytes));
  }
}

Status PipeGroup::Exchange(const Operation& operation, int phase, const Combine* combine,
                           int64_t* bytes_sent) {
  int64_t longest = combine != nullptr ? combine->bytes : 0;
  for (int i = 0; i < size(); ++i) {
    const Leg& leg = legs_[static_cast<size_t>(i)];
    longest = i == rank() ? longest : std::max({longest, leg.out_bytes, leg.in_bytes});
  }
  for (int64_t offset = 0; offset < longest; offset += kChunkBytes) {
    MW_TRY(SendChunk(operation, phase, offset, bytes_sent));
    MW_TRY(ReceiveChunk(operation, phase, offset, combine));
  }
  return OkStatus();
}

Status PipeGroup::SendChunk(const Operation& operation, int phase, int64_t offset,
                            int64_t* bytes_sent) {
  for (int step = 1; step < size(); ++step) {  // start at the next member: spreads the load
    const int i = (rank() + step) % size();
    const Leg& leg = legs_[static_cast<size_t>(i)];
    const int64_t bytes = ChunkAt(offset, leg.out_bytes);
    if (bytes == 0) {
      continue;
    }
    MW_ASSIGN_OR_RETURN(std::byte * slot, sender(i).Reserve(operation.deadline));
    std::memcpy(slot, leg.out + offset, static_cast<size_t>(bytes));
    sender(i).Commit(bytes, Tag(operation, phase));
    *bytes_sent += bytes;
  }
  return OkStatus();
}

Status PipeGroup::ReceiveChunk(const Operation& operation, int phase, int64_t offset,
                               const Combine* combine) {
  const int64_t width = operation.element_bytes();
  for (int i = 0; i < size(); ++i) {
    const bool own = i == rank();
    const Leg& leg = legs_[static_cast<size_t>(i)];
    const int64_t total = combine != nullptr ? combine->bytes : (own ? 0 : leg.in_bytes);
    const int64_t bytes = ChunkAt(offset, total);
    if (bytes == 0) {
      continue;
    }
    const std::byte* piece = own ? combine->own + offset : nullptr;
    if (!own) {
      MW_ASSIGN_OR_RETURN(const PipeReceiver::Message message,
                          receiver(i).Front(operation.deadline));
      MW_TRY(CheckMessage(i, message, Tag(operation, phase), bytes));
      piece = message.data;
    }
    if (combine != nullptr) {
      accumulator_.Add(operation.kernel, piece, bytes / width, i == 0);
    } else {
      std::memcpy(leg.in + offset, piece, static_cast<size_t>(bytes));
    }
    if (!own) {
      receiver(i).Pop();
    }
  }
  if (combine != nullptr && ChunkAt(offset, combine->bytes) > 0) {
    accumulator_.Store(operation.kernel, combine->output + offset,
                       ChunkAt(offset, combine->bytes) / width);
  }
  return OkStatus();
}

Status PipeGroup::CheckMessage(int member, const PipeReceiver::Message& message, uint64_t tag,
                               int64_t bytes) const {
  if (message.tag == tag && message.bytes == bytes) {
    return OkStatus();
  }
  return Internal(fmt::format(
      "members disagree: {} runs {} with a piece of {} bytes here, {} runs {} with a piece of {}",
      context().RankName(ranks()[static_cast<size_t>(rank())]), DescribeTag(tag), bytes,
      context().RankName(ranks()[static_cast<size_t>(member)]), DescribeTag(message.tag),
      message.bytes));
}

}  // namespace meshwright::collective
