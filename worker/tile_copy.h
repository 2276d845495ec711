// TileCopy: a box of a row-major tensor as runs of contiguous bytes; copies it to and from a dense
// block.
//
// Planned once: trailing dims that the box covers fully, and the first that it does not, make one
// run; outer dims that step evenly are merged. A box that is one run needs no copy at all: it can
// be sent from, or received into, its place.
//
// Thread rule: immutable; copies may run on any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/thread_team.h"
#include "device/queue.h"
#include "ir/graph.h"
#include "ir/program.h"

namespace meshwright::worker {

// Who copies: a GPU's queue, or this thread with its team (null: alone).
struct Copier {
  Copier(ThreadTeam* with) : team(with) {}       // NOLINT: one of the two says it all
  Copier(device::Queue& with) : queue(&with) {}  // NOLINT
  ThreadTeam* team = nullptr;
  device::Queue* queue = nullptr;
};

class TileCopy {
 public:
  TileCopy() = default;
  // REQUIRES a box inside `dims`; an empty box is the whole tensor.
  TileCopy(const ir::Dims& dims, const ir::Box& box, int64_t element_bytes);

  bool contiguous() const { return loops_.empty(); }
  int64_t offset_bytes() const {
    return offset_bytes_;
  }                                                     // of the box's first element in the tensor
  int64_t bytes() const { return runs_ * run_bytes_; }  // of the dense block

  // From the first to the last byte of the box in the tensor.
  int64_t span_bytes() const;

  // `tensor` is the start of the whole tensor. Work is split over a team when it is large. Errors:
  // the queue's.
  Status Pack(const std::byte* tensor, std::byte* dense, const Copier& copier) const;
  Status Unpack(const std::byte* dense, std::byte* tensor, const Copier& copier) const;

 private:
  using Loop = device::StridedRuns::Loop;
  // Place of a run in the tensor, in row-major order of the box.
  int64_t RunOffset(int64_t run) const;
  template <typename Body>
  void ForRuns(ThreadTeam* team, const Body& body) const;

  int64_t offset_bytes_ = 0;
  int64_t run_bytes_ = 0;
  int64_t runs_ = 1;
  std::vector<Loop> loops_;  // major first
};

// The box of block `index` when dim `dim` is cut into blocks of `size`.
ir::Box BlockBox(const ir::Dims& dims, int dim, int64_t index, int64_t size);

}  // namespace meshwright::worker
