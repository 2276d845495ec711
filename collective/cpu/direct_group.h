// A group whose members are threads and processes of one host: they work on each other's memory in
// place, between steps of a common board.
//
//   small     at most Board::kSmallBytes from each: copied to the board, one step, read by all
//   in place  all-reduce: member j combines block j of all members and stores it to all of them;
//             the others: each reads what it needs. A step before and one after
//   staged    where a member has not mapped all memories, or data are in none of them: through the
//             pipes of a PipeGroup. The notices decide, so all members decide alike
// All three combine in list order, so they give the same bits.
//
// Bytes counted are the closed forms of Counters, however the bytes moved.
// Lifetime of foreign buffers: a member returns from a failed call only when no other member of its
// process is inside a visit of foreign memory, and a visit begins only while the fabric is not
// aborted. So a caller may free its buffers after an error. Members of other processes visit
// through mappings of their own, which outlive the caller's; what they read there after a failure
// is never the result of a call that succeeds, as the failing member breaks the board first.
//
// Thread rule: each member by its own thread. Ownership: members of a process share the DirectTeam.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collective/cpu/board.h"
#include "collective/cpu/group_base.h"
#include "collective/cpu/pipe_group.h"

namespace meshwright::collective {

// What the members of one group in one process share.
struct DirectTeam {
  Board board;    // of a group over several processes: set by Fabric::Connect, or never
  Region memory;  // of the board, when all members are in this process
  bool one_process = false;
  alignas(64) WaitWord visitors = {};  // members of this process inside foreign memory
};

class DirectGroup final : public GroupBase {
 public:
  // staged: null when all members are in this process.
  DirectGroup(std::string name, std::vector<int> ranks, int position, const FabricContext& context,
              std::shared_ptr<DirectTeam> team, std::unique_ptr<PipeGroup> staged);

  PipeGroup* staged() const { return staged_.get(); }
  // Calls that were staged so far, for tests.
  int64_t staged_calls() const { return staged_calls_; }

 protected:
  Status Execute(const Operation& operation, int64_t* bytes_sent) override;
  void AfterAbort() override;

 private:
  Status AwaitBoard(Deadline deadline);
  void Prepare();
  void Post(const Operation& operation);
  Status Step(Deadline deadline);
  Status StepFailure(WaitResult result, int missing, Deadline deadline) const;
  Status AwaitCause(Deadline deadline) const;
  Status CheckSameOperation(const Operation& operation) const;
  std::string MissingMembers() const;

  bool IsSmall(const Operation& operation) const;
  bool CanWorkInPlace(const Operation& operation) const;
  int64_t InputBytes(const Operation& operation) const;
  Status FindInputs(const Operation& operation);
  int64_t BytesSent(const Operation& operation) const;
  Status Staged(const Operation& operation, int64_t* bytes_sent);

  void MoveSmall(const Operation& operation);
  bool MoveInPlace(const Operation& operation);
  bool AllReduceBlocks(const Operation& operation);
  bool ReduceBlock(const Operation& operation);
  bool CopyFrom(int member, int64_t input_offset, std::byte* output, int64_t bytes);
  // Combines `bytes` of all members' inputs_ from `begin` on into the first `outputs` of outputs_.
  void Combine(const Operation& operation, int64_t begin, size_t outputs, int64_t bytes);
  // A visit of foreign memory in chunks. False when the fabric was aborted in between.
  template <typename Body>
  bool ForChunks(int64_t bytes, const Body& body);

  const Notice& NoticeOf(int member) const { return team_->board.notice(member, call_); }
  uint64_t ProcessOf(int member) const;

  std::shared_ptr<DirectTeam> team_;
  std::unique_ptr<PipeGroup> staged_;
  Accumulator accumulator_;
  std::atomic<int64_t> staged_calls_{0};

  // What is known once the board is.
  bool prepared_ = false;
  bool refused_ = false;
  bool sees_all_ = true;
  OwnMemory own_;
  std::vector<const PeerMemory*> peers_;  // by member; null for members of this process

  uint64_t call_ = 0;
  uint32_t step_ = 0;
  std::vector<std::byte*> inputs_;   // by member, of the current call
  std::vector<std::byte*> outputs_;  // by member, of the current piece
  std::vector<float*> float_inputs_, float_outputs_;
};

}  // namespace meshwright::collective
