#include "collective/cpu/direct_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace meshwright::collective {
namespace {

// Small enough for the accumulator to stay in the L2 cache, large enough to hide the bookkeeping.
constexpr int64_t kChunkBytes = 256 << 10;

}  // namespace

DirectGroup::DirectGroup(std::string name, std::vector<int> ranks, int position,
                         const FabricContext& context, std::shared_ptr<DirectTeam> team)
    : GroupBase(std::move(name), std::move(ranks), position, context),
      team_(std::move(team)),
      accumulator_(kChunkBytes) {}

const Operation& DirectGroup::OperationOf(int member) const {
  return team_->seats[static_cast<size_t>(member)].operation;
}

Status DirectGroup::Execute(const Operation& operation, int64_t* bytes_sent) {
  team_->seats[static_cast<size_t>(rank())].operation = operation;
  MW_TRY(Barrier(operation.deadline));
  MW_TRY(CheckSameOperation(operation));

  const int64_t block_bytes = operation.count * operation.element_bytes();
  bool complete = true;
  switch (operation.kind) {
    case Kind::kAllReduce:
      MW_TRY(AllReducePhases(operation, bytes_sent));
      break;
    case Kind::kReduceScatter:
      complete = ReduceBlock(operation, rank() * operation.count, (rank() + 1) * operation.count,
                             operation.output);
      *bytes_sent += (size() - 1) * block_bytes;
      break;
    case Kind::kAllGather:
    case Kind::kAllToAll:
      for (int i = 0; i < size() && complete; ++i) {
        const int64_t offset = operation.kind == Kind::kAllToAll ? rank() * block_bytes : 0;
        complete = CopyFrom(i, offset, operation.output + i * block_bytes, block_bytes);
      }
      *bytes_sent += (size() - 1) * block_bytes;
      break;
    case Kind::kBroadcast:
      if (rank() == operation.root) {
        *bytes_sent += (size() - 1) * block_bytes;
      } else {
        complete = CopyFrom(operation.root, 0, operation.output, block_bytes);
      }
      break;
    case Kind::kSendRecv:
      return Internal("not a group operation");
  }
  if (!complete) {
    return context().latch.status();
  }
  return Barrier(operation.deadline);  // nobody leaves while its buffer is being read
}

// Member j writes block j of its own buffer only, and of the others' buffers reads block j only: no
// barrier is needed between reading and writing inside a phase.
Status DirectGroup::AllReducePhases(const Operation& operation, int64_t* bytes_sent) {
  const int64_t width = operation.element_bytes();
  const auto [begin, end] = BlockRange(operation.count, size(), rank());
  bool complete = ReduceBlock(operation, begin, end, operation.output + begin * width);
  MW_TRY(Barrier(operation.deadline));
  for (int i = 0; i < size() && complete; ++i) {
    const auto [from, to] = BlockRange(operation.count, size(), i);
    complete = i == rank() ||
               CopyFrom(i, from * width, operation.output + from * width, (to - from) * width);
  }
  *bytes_sent += (operation.count + (size() - 2) * (end - begin)) * width;
  return complete ? OkStatus() : context().latch.status();
}

Status DirectGroup::Barrier(Deadline deadline) {
  DirectTeam& team = *team_;
  std::atomic<uint32_t>& own_arrivals = team.seats[static_cast<size_t>(rank())].arrivals;
  const uint32_t arrivals = own_arrivals.load() + 1;
  own_arrivals.store(arrivals);
  const uint32_t epoch = team.epoch.value.load();
  if (team.arrived.fetch_add(1) + 1 == static_cast<uint32_t>(size())) {
    team.arrived.store(0);
    StoreAndWake(team.epoch, epoch + 1);
    return OkStatus();
  }
  const auto released = [&] { return team.epoch.value.load() != epoch; };
  switch (WaitOn(team.epoch, released, {&context().latch, nullptr, deadline, context().spin})) {
    case WaitResult::kReady:
      return OkStatus();
    case WaitResult::kStopped:
      return context().latch.status();
    case WaitResult::kDeparted:
    case WaitResult::kTimedOut:
      break;
  }
  return DeadlineExceeded(fmt::format("{} did not come within {} ms", MissingMembers(arrivals),
                                      context().operation_timeout_ms));
}

std::string DirectGroup::MissingMembers(uint32_t arrivals) const {
  std::vector<std::string> names;
  for (int i = 0; i < size(); ++i) {
    if (team_->seats[static_cast<size_t>(i)].arrivals.load() != arrivals) {
      names.push_back(context().RankName(ranks()[static_cast<size_t>(i)]));
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

Status DirectGroup::CheckSameOperation(const Operation& operation) const {
  for (int i = 0; i < size(); ++i) {
    const Operation& other = OperationOf(i);
    const bool same = other.kind == operation.kind && other.sequence == operation.sequence &&
                      other.count == operation.count && other.dtype == operation.dtype &&
                      other.reduction == operation.reduction && other.root == operation.root;
    if (!same) {
      return Internal(fmt::format(
          "members disagree: {} runs {} #{} of {} {} (root {}), {} runs {} #{} of {} {} (root {})",
          context().RankName(ranks()[static_cast<size_t>(rank())]), KindName(operation.kind),
          operation.sequence, operation.count, ir::DTypeName(operation.dtype), operation.root,
          context().RankName(ranks()[static_cast<size_t>(i)]), KindName(other.kind), other.sequence,
          other.count, ir::DTypeName(other.dtype), other.root));
    }
  }
  return OkStatus();
}

// body(offset, bytes) reads foreign memory. Entering increments `readers` before it looks at the
// latch; a failing member sets the latch before it looks at `readers`: one of the two sees the
// other.
template <typename Body>
bool DirectGroup::ForChunks(int64_t bytes, const Body& body) {
  WaitWord& readers = team_->readers;
  bool complete = true;
  readers.value.fetch_add(1);
  for (int64_t offset = 0; offset < bytes && complete; offset += kChunkBytes) {
    complete = !context().latch.stopped();
    if (complete) {
      body(offset, std::min(kChunkBytes, bytes - offset));
    }
  }
  readers.value.fetch_sub(1);
  if (readers.waiters.load() != 0) {
    SharedFutexWake(readers.value);
  }
  return complete;
}

// Ends within one chunk's work of the slowest reader: sections look at the latch before each chunk.
void DirectGroup::AfterAbort() {
  WaitWord& readers = team_->readers;
  for (;;) {
    const uint32_t seen = readers.value.load();
    if (seen == 0) {
      return;
    }
    readers.waiters.fetch_add(1);
    SharedFutexWait(readers.value, seen,
                    std::chrono::steady_clock::now() + std::chrono::milliseconds(kWaitSliceMs));
    readers.waiters.fetch_sub(1);
  }
}

bool DirectGroup::ReduceBlock(const Operation& operation, int64_t begin, int64_t end,
                              std::byte* output) {
  const int64_t width = operation.element_bytes();
  return ForChunks((end - begin) * width, [&](int64_t offset, int64_t bytes) {
    const int64_t count = bytes / width;
    for (int i = 0; i < size(); ++i) {
      accumulator_.Add(operation.kernel, OperationOf(i).input + begin * width + offset, count,
                       i == 0);
    }
    accumulator_.Store(operation.kernel, output + offset, count);
  });
}

bool DirectGroup::CopyFrom(int member, int64_t input_offset, std::byte* output, int64_t bytes) {
  const std::byte* input = OperationOf(member).input + input_offset;
  return ForChunks(bytes, [&](int64_t offset, int64_t chunk) {
    std::memmove(output + offset, input + offset, static_cast<size_t>(chunk));
  });
}

}  // namespace meshwright::collective
