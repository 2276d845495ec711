// A group whose members meet in NCCL.
//
// A call puts the work into the rank's queue of collectives and returns: the data is there when the
// queue is. Differences from the groups of CPUs:
// - Members that make different calls are not noticed; NCCL hangs or mixes data up.
// - NCCL chooses the order of a reduction: results are equal on all members and repeatable on one
//   machine, not those of the list order. log-sum-exp is gathered and combined in list order.
// - Counted bytes are the closed forms, not what NCCL really moves. Seconds are the host's.
//
// Thread rule: as Group; the rank's queue of collectives is used by the same thread. Ownership: as
// Group.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collective/cpu/group_base.h"
#include "collective/nccl/combine.h"
#include "collective/nccl/comm.h"
#include "collective/nccl/setup.h"

namespace meshwright::collective::nccl {

class NcclGroup final : public GroupBase {
 public:
  NcclGroup(std::string name, std::vector<int> ranks, int position, Context& context,
            const Local& local, Combiner& combiner)
      : GroupBase(std::move(name), std::move(ranks), position, context.fabric),
        context_(context),
        local_(local),
        combiner_(combiner) {}

  // Of Connect(), before the first call. None is needed for a group of one.
  void Attach(Comm* comm) { comm_ = comm; }
  // Gives its memory back. `leak`: forgets it instead, the device still uses it.
  void Release(bool leak);
  int64_t ScratchBytes(Kind kind, int64_t count, ir::DType dtype,
                       Reduction reduction) const override;
  void SetScratch(std::byte* memory, int64_t bytes) override { given_ = {memory, bytes}; }
  const std::vector<int>& member_ranks() const { return ranks(); }

 private:
  Status Execute(const Operation& operation, int64_t* bytes_sent) override;
  Status CopyAlone(const Operation& operation) override;
  Status Put(const Operation& operation);
  Status PutLogSumExp(const Operation& operation);
  // What SetScratch() gave, or of the rank's device: grows, and what it had is kept, for work that
  // is still to be done.
  Result<std::byte*> Scratch(int64_t bytes);

  Context& context_;
  const Local& local_;
  Combiner& combiner_;
  Comm* comm_ = nullptr;
  std::pair<std::byte*, int64_t> given_ = {nullptr, 0};
  std::vector<std::unique_ptr<device::Memory>> scratch_;
};

// What a member puts on the wire by the closed forms. Positions share an all-reduce as those of the
// CPU groups do: who reduces a block sends it to all others.
int64_t BytesSent(const Operation& operation, int size, int position);
DataType DataTypeOf(ir::DType dtype);  // kBool: kUint8

}  // namespace meshwright::collective::nccl
