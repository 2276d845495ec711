// A group whose members are threads of one process: members read each other's buffers in place,
// between barriers.
//
// Bytes counted are those a member would send: it reads exactly as much from the others.
// Lifetime of foreign buffers: a member returns from a failed call only when no other member is
// inside a read section, and a read section is entered only while the fabric is not aborted. So a
// caller may free its buffers after an error.
//
// Thread rule: each member by its own thread. Ownership: members share the DirectTeam.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collective/cpu/group_base.h"

namespace meshwright::collective {

// What the members of one group share.
struct DirectTeam {
  explicit DirectTeam(int size) : seats(static_cast<size_t>(size)) {}

  struct alignas(64) Seat {
    Operation operation;                // written before a barrier, read after it
    std::atomic<uint32_t> arrivals{0};  // barriers entered, to name the missing
  };
  std::vector<Seat> seats;
  alignas(64) std::atomic<uint32_t> arrived{0};  // members at the current barrier
  alignas(64) WaitWord epoch;                    // barriers passed
  alignas(64) WaitWord readers;                  // members inside a read section
};

class DirectGroup final : public GroupBase {
 public:
  DirectGroup(std::string name, std::vector<int> ranks, int position, const FabricContext& context,
              std::shared_ptr<DirectTeam> team);

 protected:
  Status Execute(const Operation& operation, int64_t* bytes_sent) override;
  void AfterAbort() override;

 private:
  Status AllReducePhases(const Operation& operation, int64_t* bytes_sent);
  Status Barrier(Deadline deadline);
  Status CheckSameOperation(const Operation& operation) const;
  std::string MissingMembers(uint32_t arrivals) const;
  const Operation& OperationOf(int member) const;

  // Read sections. False when the fabric was aborted in between.
  bool ReduceBlock(const Operation& operation, int64_t begin, int64_t end, std::byte* output);
  bool CopyFrom(int member, int64_t input_offset, std::byte* output, int64_t bytes);
  template <typename Body>
  bool ForChunks(int64_t bytes, const Body& body);

  std::shared_ptr<DirectTeam> team_;
  Accumulator accumulator_;
};

}  // namespace meshwright::collective
