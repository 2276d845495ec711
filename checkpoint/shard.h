// A shard: the boxes that one device gives to a checkpoint, as one safetensors file.
//
// The file follows PyTorch's convention for sharded Hugging Face checkpoints: the header has the
// shapes of the boxes, "DCP_SHARDING_INFO" says where they lie in the whole tensors. Weights are in
// sharded/, which torch's reader takes as it is; everything else is in state/, since that reader
// would make tensors of it, and of types that it does not know tensors of another type.
//
// Thread rule: pure functions. Ownership: bytes belong to the caller and outlive the image. Source:
// torch/distributed/checkpoint/_hf_utils.py and hf_storage.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/digest.h"
#include "checkpoint/manifest.h"
#include "ir/graph.h"
#include "ir/program.h"

namespace meshwright::checkpoint {

// A box of a tensor of the state, in row-major order.
struct BoxBytes {
  std::string tensor;
  ir::TensorType type;  // of the whole tensor
  ir::MemoryKind kind = ir::MemoryKind::kWeights;
  ir::Box box;  // explicit
  std::span<const std::byte> bytes;
};

// What a box has become. `stored.file` is 0: the only file of its shard.
struct ShardBox {
  std::string tensor;
  ir::TensorType type;
  ir::MemoryKind kind = ir::MemoryKind::kWeights;
  StoredBox stored;
  friend bool operator==(const ShardBox&, const ShardBox&) = default;
};

struct ShardImage {
  std::string name;    // "sharded/shard-00002-model-00001-of-00001.safetensors"
  std::string header;  // the first bytes; then the parts, one after the other
  std::vector<std::span<const std::byte>> parts;
  std::vector<ShardBox> boxes;
  int64_t bytes = 0;
};

enum class ShardKind : uint8_t { kWeights, kState };
std::string ShardName(ShardKind kind, int rank);

// The images of what a device gives, at most one of each kind; boxes without elements are left out.
// Computes all digests. Errors: kInvalidArgument: two boxes of one tensor, or bytes of another size
// than their box.
Result<std::vector<ShardImage>> MakeShards(int rank, const std::vector<BoxBytes>& boxes);

// Adds what a file holds to what a worker has written.
void AddShard(Shards& written, const ShardImage& image);

}  // namespace meshwright::checkpoint
