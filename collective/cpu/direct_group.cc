#include "collective/cpu/direct_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "collective/cpu/sum.h"

namespace meshwright::collective {
namespace {

// How often a visit looks for an abort.
constexpr int64_t kVisitBytes = 256 << 10;
// What is combined at once: an accumulator of twice this stays in the L1 cache.
constexpr int64_t kPieceBytes = 8 << 10;
// A small call reads the buffers of all members: with many of them, blocks are less work.
constexpr int64_t kSmallTotalBytes = 128 << 10;

}  // namespace

DirectGroup::DirectGroup(std::string name, std::vector<int> ranks, int position,
                         const FabricContext& context, std::shared_ptr<DirectTeam> team,
                         std::unique_ptr<PipeGroup> staged)
    : GroupBase(std::move(name), std::move(ranks), position, context),
      team_(std::move(team)),
      staged_(std::move(staged)),
      accumulator_(kPieceBytes),
      peers_(static_cast<size_t>(size())),
      inputs_(static_cast<size_t>(size())),
      outputs_(inputs_.size()),
      float_inputs_(inputs_.size()),
      float_outputs_(inputs_.size()) {}

uint64_t DirectGroup::ProcessOf(int member) const {
  const auto rank_of_member = static_cast<size_t>(ranks()[static_cast<size_t>(member)]);
  return context().options.members[rank_of_member].process_id;
}

Status DirectGroup::Execute(const Operation& operation, int64_t* bytes_sent) {
  if (!prepared_) {
    MW_TRY(AwaitBoard(operation.deadline));
  }
  if (refused_) {
    return Staged(operation, bytes_sent);
  }
  Post(operation);
  MW_TRY(Step(operation.deadline));
  MW_TRY(CheckSameOperation(operation));
  if (IsSmall(operation)) {
    MoveSmall(operation);
  } else if (CanWorkInPlace(operation)) {
    MW_TRY(FindInputs(operation));
    if (!MoveInPlace(operation)) {
      return context().latch.status();
    }
    MW_TRY(Step(operation.deadline));  // nobody leaves while its buffer is in use
  } else {
    return Staged(operation, bytes_sent);
  }
  *bytes_sent += BytesSent(operation);
  return OkStatus();
}

Status DirectGroup::Staged(const Operation& operation, int64_t* bytes_sent) {
  staged_calls_.fetch_add(1, std::memory_order_relaxed);
  return staged_->Execute(operation, bytes_sent);
}

// ---- Coming together ----------------------------------------------------------------------------

// Whoever offered the board decides when all have answered; who could not map it needs no answer.
Status DirectGroup::AwaitBoard(Deadline deadline) {
  if (team_->one_process || !team_->board.valid()) {
    refused_ = !team_->one_process;
    Prepare();
    return OkStatus();
  }
  WaitWord& state = team_->board.state();
  const auto decided = [&] {
    return state.value.load() != static_cast<uint32_t>(BoardState::kUndecided);
  };
  switch (WaitOn(state, decided, {&context().latch, nullptr, deadline, context().patience})) {
    case WaitResult::kReady:
      refused_ = state.value.load() != static_cast<uint32_t>(BoardState::kInUse);
      Prepare();
      return OkStatus();
    case WaitResult::kStopped:
      return context().latch.status();
    case WaitResult::kDeparted:
    case WaitResult::kTimedOut:
      break;
  }
  return DeadlineExceeded(fmt::format("the processes of the group did not all connect within {} ms",
                                      context().operation_timeout_ms));
}

void DirectGroup::Prepare() {
  prepared_ = true;
  own_ = context().memory.own();
  for (int i = 0; i < size(); ++i) {
    if (ProcessOf(i) != ProcessOf(rank())) {
      const PeerMemory* peer = context().memory.peer(ProcessOf(i));
      peers_[static_cast<size_t>(i)] = peer;
      sees_all_ = sees_all_ && peer != nullptr && peer->complete;
    }
  }
}

void DirectGroup::Post(const Operation& operation) {
  ++call_;
  Notice& notice = team_->board.notice(rank(), call_);
  const int64_t bytes = InputBytes(operation);
  notice = {.sequence = operation.sequence,
            .count = operation.count,
            .root = operation.root,
            .kind = operation.kind,
            .dtype = operation.dtype,
            .reduction = operation.reduction,
            .sees_all = sees_all_,
            .input = own_.Find(operation.input, bytes),
            .data = operation.input};
  const bool sends = operation.kind != Kind::kBroadcast || operation.root == rank();
  if (IsSmall(operation) && sends) {
    std::memcpy(team_->board.small(rank(), call_), operation.input, static_cast<size_t>(bytes));
  }
}

Status DirectGroup::Step(Deadline deadline) {
  const Board& board = team_->board;
  board.Reach(rank(), ++step_);
  int missing = 0;
  bool departed = false;
  const auto complete = [&] {
    missing = board.FirstMissing(step_, missing);
    if (missing < size()) {
      const PeerMemory* peer = peers_[static_cast<size_t>(missing)];
      departed = peer != nullptr && peer->departed->load();
    }
    return missing == size() || departed;
  };
  const WaitResult result =
      WaitOn(board.bell(), complete, {&context().latch, nullptr, deadline, context().patience});
  if (result == WaitResult::kReady && missing == size()) {
    return board.broken().load() == 0 ? OkStatus() : AwaitCause(deadline);
  }
  return StepFailure(departed ? WaitResult::kDeparted : result, missing, deadline);
}

Status DirectGroup::StepFailure(WaitResult result, int missing, Deadline deadline) const {
  switch (result) {
    case WaitResult::kStopped:
      return context().latch.status();
    case WaitResult::kDeparted:
      // A member that gave up says why before it leaves.
      if (team_->board.broken().load() != 0) {
        return AwaitCause(deadline);
      }
      return Unavailable(fmt::format("{} closed its fabric while group {} still needs it",
                                     context().RankName(ranks()[static_cast<size_t>(missing)]),
                                     name()));
    case WaitResult::kReady:
    case WaitResult::kTimedOut:
      break;
  }
  return DeadlineExceeded(fmt::format("{} did not come within {} ms; {}", MissingMembers(),
                                      context().operation_timeout_ms, kLongerDeadline));
}

// Another member failed: its process says why. That takes no longer than telling it.
Status DirectGroup::AwaitCause(Deadline deadline) const {
  constexpr std::chrono::minutes kTold{1};
  deadline = std::min(deadline, std::chrono::steady_clock::now() + kTold);
  WaitWord never;
  const WaitScope scope{&context().latch, nullptr, deadline, kSharedCore};
  if (WaitOn(
          never, [] { return false; }, scope) == WaitResult::kStopped) {
    return context().latch.status();
  }
  return DeadlineExceeded("a member gave up and its process did not say why");
}

std::string DirectGroup::MissingMembers() const {
  std::vector<std::string> names;
  for (int i = 0; i < size(); ++i) {
    if (team_->board.FirstMissing(step_, i) == i) {
      names.push_back(context().RankName(ranks()[static_cast<size_t>(i)]));
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

Status DirectGroup::CheckSameOperation(const Operation& operation) const {
  for (int i = 0; i < size(); ++i) {
    const Notice& other = NoticeOf(i);
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

// ---- What a call is -----------------------------------------------------------------------------

int64_t DirectGroup::InputBytes(const Operation& operation) const {
  const bool by_member =
      operation.kind == Kind::kReduceScatter || operation.kind == Kind::kAllToAll;
  return operation.count * operation.element_bytes() * (by_member ? size() : 1);
}

bool DirectGroup::IsSmall(const Operation& operation) const {
  const int64_t bytes = InputBytes(operation);
  return bytes <= Board::kSmallBytes && bytes * size() <= kSmallTotalBytes;
}

bool DirectGroup::CanWorkInPlace(const Operation& operation) const {
  for (int i = 0; i < size() && !team_->one_process; ++i) {
    const bool read = operation.kind != Kind::kBroadcast || operation.root == i;
    if (!NoticeOf(i).sees_all || (read && NoticeOf(i).input.memory < 0)) {
      return false;
    }
  }
  return true;
}

Status DirectGroup::FindInputs(const Operation& operation) {
  for (int i = 0; i < size(); ++i) {
    const PeerMemory* peer = peers_[static_cast<size_t>(i)];
    const Notice& notice = NoticeOf(i);
    const bool read = operation.kind != Kind::kBroadcast || operation.root == i;
    std::byte* input = peer == nullptr ? const_cast<std::byte*>(notice.data)
                       : read          ? peer->At(notice.input, InputBytes(operation))
                                       : nullptr;
    if (read && input == nullptr) {
      return DataLoss(fmt::format("{} announced data outside of its shared memory",
                                  context().RankName(ranks()[static_cast<size_t>(i)])));
    }
    inputs_[static_cast<size_t>(i)] = input;
  }
  return OkStatus();
}

int64_t DirectGroup::BytesSent(const Operation& operation) const {
  const int64_t width = operation.element_bytes();
  if (operation.kind == Kind::kAllReduce) {
    const auto [begin, end] = BlockRange(operation.count, size(), rank());
    return (operation.count + (size() - 2) * (end - begin)) * width;
  }
  if (operation.kind == Kind::kRingShift) return operation.count * width;
  const bool sends = operation.kind != Kind::kBroadcast || operation.root == rank();
  return sends ? (size() - 1) * operation.count * width : 0;
}

// ---- Moving data --------------------------------------------------------------------------------

void DirectGroup::MoveSmall(const Operation& operation) {
  const int64_t block_bytes = operation.count * operation.element_bytes();
  for (int i = 0; i < size(); ++i) {
    inputs_[static_cast<size_t>(i)] = team_->board.small(i, call_);
  }
  const auto copy = [&](int member, int64_t from, int64_t to) {
    std::memcpy(operation.output + to, inputs_[static_cast<size_t>(member)] + from,
                static_cast<size_t>(block_bytes));
  };
  switch (operation.kind) {
    case Kind::kAllReduce:
    case Kind::kReduceScatter:
      outputs_[0] = operation.output;
      Combine(operation, operation.kind == Kind::kAllReduce ? 0 : rank() * block_bytes, 1,
              block_bytes);
      return;
    case Kind::kAllGather:
    case Kind::kAllToAll:
      for (int i = 0; i < size(); ++i) {
        copy(i, operation.kind == Kind::kAllToAll ? rank() * block_bytes : 0, i * block_bytes);
      }
      return;
    case Kind::kRingShift:
      copy(Before(operation), 0, 0);
      return;
    case Kind::kBroadcast:
      copy(operation.root, 0, 0);
      return;
    case Kind::kSendRecv:
      return;
  }
}

bool DirectGroup::MoveInPlace(const Operation& operation) {
  const int64_t block_bytes = operation.count * operation.element_bytes();
  bool complete = true;
  switch (operation.kind) {
    case Kind::kAllReduce:
      return AllReduceBlocks(operation);
    case Kind::kReduceScatter:
      return ReduceBlock(operation);
    case Kind::kAllGather:
    case Kind::kAllToAll:
      for (int i = 0; i < size() && complete; ++i) {
        const int64_t offset = operation.kind == Kind::kAllToAll ? rank() * block_bytes : 0;
        complete = CopyFrom(i, offset, operation.output + i * block_bytes, block_bytes);
      }
      return complete;
    case Kind::kRingShift:
      return CopyFrom(Before(operation), 0, operation.output, block_bytes);
    case Kind::kBroadcast:
      return rank() == operation.root || CopyFrom(operation.root, 0, operation.output, block_bytes);
    case Kind::kSendRecv:
      break;
  }
  return complete;
}

// body(offset, bytes) works on foreign memory. Entering increments `visitors` before it looks at
// the latch; a failing member sets the latch before it looks at `visitors`: one of the two sees the
// other.
template <typename Body>
bool DirectGroup::ForChunks(int64_t bytes, const Body& body) {
  WaitWord& visitors = team_->visitors;
  bool complete = true;
  visitors.value.fetch_add(1);
  for (int64_t offset = 0; offset < bytes && complete; offset += kVisitBytes) {
    complete = !context().latch.stopped();
    if (complete) {
      body(offset, std::min(kVisitBytes, bytes - offset));
    }
  }
  visitors.value.fetch_sub(1);
  if (visitors.waiters.load() != 0) {
    SharedFutexWake(visitors.value);
  }
  return complete;
}

// Ends within one chunk's work of the slowest visitor: visits look at the latch before each chunk.
void DirectGroup::AfterAbort() {
  if (team_->board.valid()) {
    team_->board.broken().store(1);
    team_->board.Ring();
  }
  WaitWord& visitors = team_->visitors;
  for (;;) {
    const uint32_t seen = visitors.value.load();
    if (seen == 0) {
      return;
    }
    visitors.waiters.fetch_add(1);
    SharedFutexWait(visitors.value, seen,
                    std::chrono::steady_clock::now() + std::chrono::milliseconds(kWaitSliceMs));
    visitors.waiters.fetch_sub(1);
  }
}

void DirectGroup::Combine(const Operation& operation, int64_t begin, size_t outputs,
                          int64_t bytes) {
  const int64_t width = operation.element_bytes();
  if (operation.dtype == ir::DType::kF32 && operation.reduction == Reduction::kSum) {
    const auto floats = [](std::byte* data) { return reinterpret_cast<float*>(data); };
    for (size_t i = 0; i < inputs_.size(); ++i) {
      float_inputs_[i] = floats(inputs_[i] + begin);
      float_outputs_[i] = floats(outputs_[i]);
    }
    SumFloats(float_inputs_, std::span(float_outputs_).first(outputs), bytes / width);
    return;
  }
  for (int64_t offset = 0; offset < bytes; offset += kPieceBytes) {
    const int64_t count = std::min(kPieceBytes, bytes - offset) / width;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      accumulator_.Add(operation.kernel, inputs_[i] + begin + offset, count, i == 0);
    }
    for (size_t i = 0; i < outputs; ++i) {
      accumulator_.Store(operation.kernel, outputs_[i] + offset, count);
    }
  }
}

// Nobody but member j touches block j of anyone's buffer.
bool DirectGroup::AllReduceBlocks(const Operation& operation) {
  const int64_t width = operation.element_bytes();
  const auto [begin, end] = BlockRange(operation.count, size(), rank());
  const int64_t first = begin * width;
  return ForChunks((end - begin) * width, [&](int64_t chunk, int64_t bytes) {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      outputs_[i] = inputs_[i] + first + chunk;
    }
    Combine(operation, first + chunk, outputs_.size(), bytes);
  });
}

bool DirectGroup::ReduceBlock(const Operation& operation) {
  const int64_t block_bytes = operation.count * operation.element_bytes();
  return ForChunks(block_bytes, [&](int64_t chunk, int64_t bytes) {
    outputs_[0] = operation.output + chunk;
    Combine(operation, rank() * block_bytes + chunk, 1, bytes);
  });
}

bool DirectGroup::CopyFrom(int member, int64_t input_offset, std::byte* output, int64_t bytes) {
  const std::byte* input = inputs_[static_cast<size_t>(member)] + input_offset;
  return ForChunks(bytes, [&](int64_t offset, int64_t chunk) {
    std::memmove(output + offset, input + offset, static_cast<size_t>(chunk));
  });
}

}  // namespace meshwright::collective
