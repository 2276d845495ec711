// CollectiveNode: a collective op of a local graph, ready to run on a group.
//
// Groups move blocks that are concatenated by member. Where the op's dim is not the leading one,
// blocks are not contiguous in the tensor; they are packed into, or unpacked from, scratch memory
// around the transfer:
//   * all_reduce: one operand is copied to its result and reduced there; several (a bucket) are
//     packed, reduced once and unpacked.
//   * all_gather: gathered into scratch; block i is unpacked to [i*n, (i+1)*n) of the dim.
//   * reduce_scatter: block i of the dim is packed as block i of the transfer.
//   * all_to_all: block i of split_dim is packed; what comes back is unpacked along concat_dim.
// On a GPU all of this is work for the queue that its groups use.
//
// Thread rule: the device's own thread. Ownership: the group belongs to the fabric.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "ops/kernel.h"
#include "worker/links.h"
#include "worker/tile_copy.h"

namespace meshwright::worker {

class CollectiveNode {
 public:
  virtual ~CollectiveNode() = default;

  // `scratch` has scratch_bytes(), 64-byte aligned. all_reduce allows result i to be operand i.
  // Blocks, but on a GPU.
  Status Run(std::span<const ops::Tensor> operands, std::span<const ops::Tensor> results,
             std::byte* scratch, const Copier& copier);
  // Run() without the transfer.
  Status RunCopies(std::span<const ops::Tensor> operands, std::span<const ops::Tensor> results,
                   std::byte* scratch, const Copier& copier);
  virtual int64_t scratch_bytes() const = 0;
  // Several tensors in one transfer.
  virtual bool bucket() const { return false; }
  // Of a group of one device: only copies.
  virtual bool alone() const { return false; }

  // What the group itself needs of the device's memory, and that memory, before the first Run().
  // Nodes whose groups use one queue may share it.
  virtual int64_t group_scratch_bytes() const { return 0; }
  virtual void SetGroupScratch(std::byte* /*memory*/, int64_t /*bytes*/) {}

 protected:
  struct Operands {
    std::span<const ops::Tensor> operands;
    std::span<const ops::Tensor> results;
    std::byte* scratch = nullptr;
  };
  // Copies before the transfer, the transfer, copies behind it.
  virtual Status Pack(const Operands&, const Copier&) { return {}; }
  virtual Status Transfer(const Operands& call) = 0;
  virtual Status Unpack(const Operands&, const Copier&) { return {}; }
};

bool IsCollective(ir::Op op);

// Errors: kInvalidArgument when shapes, dims, kind or dtypes do not fit the op and the size of the
// group.
Result<std::unique_ptr<CollectiveNode>> MakeCollectiveNode(const ir::Graph& graph,
                                                           const ir::Node& node, GroupRef group);

}  // namespace meshwright::worker
