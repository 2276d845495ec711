// What every group does the same way: argument checks, deadline, counters, and turning a
// failure into the abort of the fabric with one first cause. Subclasses move the bytes.
//
// Thread rule: as Group. Ownership: as Group.
#pragma once

#include <array>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "collective/communicator.h"
#include "collective/cpu/fabric_context.h"
#include "collective/cpu/reduce.h"

namespace meshwright::collective {

// Counters that another thread may read while the owner counts.
class CounterCell {
 public:
  void Count(int64_t bytes, std::chrono::nanoseconds elapsed);
  Counters Read() const;

 private:
  std::atomic<int64_t> calls_{0};
  std::atomic<int64_t> bytes_{0};
  std::atomic<int64_t> nanoseconds_{0};
};

// One call, with checked arguments. Data blocks: see Group.
struct Operation {
  Kind kind = Kind::kAllReduce;
  uint64_t sequence = 0;  // of the calls of this member, 1-based
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  int64_t count = 0;  // elements, as passed to the call
  ir::DType dtype = ir::DType::kF32;
  Reduction reduction = Reduction::kSum;
  ReduceKernel kernel = {};  // of all-reduce and reduce-scatter
  int root = 0;              // of ring shift: by how many positions
  Deadline deadline = {};

  int64_t element_bytes() const { return ir::DTypeBytes(dtype); }
  bool reduces() const { return kernel.add != nullptr; }
};

// [begin, end) of block `index` when `count` elements are cut into `parts`: equal blocks, the last
// ones short or empty.
std::pair<int64_t, int64_t> BlockRange(int64_t count, int parts, int index);

class GroupBase : public Group {
 public:
  GroupBase(std::string name, std::vector<int> ranks, int position, const FabricContext& context);

  int size() const final { return static_cast<int>(ranks_.size()); }
  int rank() const final { return position_; }
  const std::string& name() const final { return name_; }

  Status AllReduce(void* data, int64_t count, ir::DType dtype, Reduction reduction) final;
  Status AllGather(const void* input, void* output, int64_t count, ir::DType dtype) final;
  Status ReduceScatter(const void* input, void* output, int64_t count, ir::DType dtype,
                       Reduction reduction) final;
  Status AllToAll(const void* input, void* output, int64_t count, ir::DType dtype) final;
  Status RingShift(const void* input, void* output, int64_t count, ir::DType dtype, int by) final;
  Status Broadcast(void* data, int64_t count, ir::DType dtype, int root) final;
  Counters counters(Kind kind) const final { return counters_[static_cast<size_t>(kind)].Read(); }

 protected:
  // Moves the data of `operation`; adds what this member sends to *bytes_sent. size() > 1 and count
  // > 0 hold.
  virtual Status Execute(const Operation& operation, int64_t* bytes_sent) = 0;
  // A group of one: output becomes input. They differ and count > 0.
  virtual Status CopyAlone(const Operation& operation);
  // Called after a failed Execute(), when the fabric is aborted and before the caller gets its
  // buffers back.
  virtual void AfterAbort() {}

  // Where a ring shift comes from and where it goes.
  int Before(const Operation& shift) const { return (position_ - shift.root + size()) % size(); }
  int Behind(const Operation& shift) const { return (position_ + shift.root) % size(); }
  const std::vector<int>& ranks() const { return ranks_; }
  const FabricContext& context() const { return context_; }

 private:
  Status Run(Operation operation);
  Status Check(const Operation& operation) const;

  const std::string name_;
  const std::vector<int> ranks_;
  const int position_;
  const FabricContext& context_;
  uint64_t sequence_ = 0;
  std::array<CounterCell, kKindCount> counters_;
};

}  // namespace meshwright::collective
