#include "worker/collective_node.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "base/check.h"

namespace meshwright::worker {
namespace {

using ops::Tensor;
using NodeResult = Result<std::unique_ptr<CollectiveNode>>;

std::byte* Bytes(const Tensor& tensor) { return static_cast<std::byte*>(tensor.data); }

TileCopy WholeTile(const ir::TensorType& type) {
  return TileCopy(type.dims, {}, ir::DTypeBytes(type.dtype));
}

// The blocks of a tensor whose dim is cut into `parts`, by position.
std::vector<TileCopy> BlockTiles(const ir::TensorType& type, int dim, int64_t parts) {
  MW_CHECK(parts >= 1 && type.dims[static_cast<size_t>(dim)] % parts == 0)
      << parts << " blocks of dim " << dim << " of " << type.ToString();
  const int64_t size = type.dims[static_cast<size_t>(dim)] / parts;
  std::vector<TileCopy> tiles;
  for (int64_t i = 0; i < parts; ++i) {
    tiles.emplace_back(type.dims, BlockBox(type.dims, dim, i, size), ir::DTypeBytes(type.dtype));
  }
  return tiles;
}

// Blocks that are runs lie one after the other by member, as groups want them.
bool InPlace(const std::vector<TileCopy>& tiles) { return tiles[0].contiguous(); }

Status PackAll(const std::vector<TileCopy>& tiles, const std::byte* tensor, std::byte* dense,
               const Copier& copier) {
  for (const TileCopy& tile : tiles) {
    MW_TRY(tile.Pack(tensor, dense, copier));
    dense += tile.bytes();
  }
  return OkStatus();
}

Status UnpackAll(const std::vector<TileCopy>& tiles, const std::byte* dense, std::byte* tensor,
                 const Copier& copier) {
  for (const TileCopy& tile : tiles) {
    MW_TRY(tile.Unpack(dense, tensor, copier));
    dense += tile.bytes();
  }
  return OkStatus();
}

// A group of one device: every op is a copy.
class AloneNode final : public CollectiveNode {
 public:
  explicit AloneNode(std::vector<TileCopy> tiles) : tiles_(std::move(tiles)) {}
  int64_t scratch_bytes() const override { return 0; }
  bool alone() const override { return true; }

 private:
  Status Pack(const Operands& call, const Copier& copier) override {
    for (size_t i = 0; i < tiles_.size(); ++i) {
      MW_CHECK(i < call.operands.size() && i < call.results.size()) << "tile " << i << " of a call";
      if (call.operands[i].data == call.results[i].data) continue;
      MW_TRY(tiles_[i].Pack(Bytes(call.operands[i]), Bytes(call.results[i]), copier));
    }
    return OkStatus();
  }
  Status Transfer(const Operands&) override { return OkStatus(); }

  const std::vector<TileCopy> tiles_;
};

class AllReduceNode final : public CollectiveNode {
 public:
  AllReduceNode(collective::Group& group, std::vector<TileCopy> tiles, ir::DType dtype,
                collective::Reduction reduction)
      : group_(group), tiles_(std::move(tiles)), dtype_(dtype), reduction_(reduction) {
    for (const TileCopy& tile : tiles_) bytes_ += tile.bytes();
  }

  int64_t scratch_bytes() const override { return bucket() ? bytes_ : 0; }
  bool bucket() const override { return tiles_.size() > 1; }
  int64_t group_scratch_bytes() const override {
    return group_.ScratchBytes(collective::Kind::kAllReduce, count(), dtype_, reduction_);
  }
  void SetGroupScratch(std::byte* memory, int64_t bytes) override {
    group_.SetScratch(memory, bytes);
  }

 private:
  int64_t count() const { return bytes_ / ir::DTypeBytes(dtype_); }

  Status Pack(const Operands& call, const Copier& copier) override {
    if (!bucket() && call.operands[0].data == call.results[0].data) return OkStatus();
    std::byte* place = bucket() ? call.scratch : Bytes(call.results[0]);
    for (size_t i = 0; i < tiles_.size(); ++i) {
      MW_TRY(tiles_[i].Pack(Bytes(call.operands[i]), place, copier));
      place += tiles_[i].bytes();
    }
    return OkStatus();
  }
  Status Transfer(const Operands& call) override {
    return group_.AllReduce(bucket() ? call.scratch : Bytes(call.results[0]), count(), dtype_,
                            reduction_);
  }
  Status Unpack(const Operands& call, const Copier& copier) override {
    const std::byte* place = call.scratch;
    for (size_t i = 0; bucket() && i < tiles_.size(); ++i) {
      MW_TRY(tiles_[i].Unpack(place, Bytes(call.results[i]), copier));
      place += tiles_[i].bytes();
    }
    return OkStatus();
  }

  collective::Group& group_;
  const std::vector<TileCopy> tiles_;  // of each operand
  const ir::DType dtype_;
  const collective::Reduction reduction_;
  int64_t bytes_ = 0;
};

class AllGatherNode final : public CollectiveNode {
 public:
  AllGatherNode(collective::Group& group, std::vector<TileCopy> tiles,
                const ir::TensorType& operand)
      : group_(group),
        tiles_(std::move(tiles)),
        count_(operand.elements()),
        dtype_(operand.dtype) {}

  int64_t scratch_bytes() const override {
    return InPlace(tiles_) ? 0 : static_cast<int64_t>(tiles_.size()) * tiles_[0].bytes();
  }

 private:
  Status Transfer(const Operands& call) override {
    std::byte* const blocks = InPlace(tiles_) ? Bytes(call.results[0]) : call.scratch;
    return group_.AllGather(call.operands[0].data, blocks, count_, dtype_);
  }
  Status Unpack(const Operands& call, const Copier& copier) override {
    if (InPlace(tiles_)) return OkStatus();
    return UnpackAll(tiles_, call.scratch, Bytes(call.results[0]), copier);
  }

  collective::Group& group_;
  const std::vector<TileCopy> tiles_;  // of the result
  const int64_t count_;
  const ir::DType dtype_;
};

class ReduceScatterNode final : public CollectiveNode {
 public:
  ReduceScatterNode(collective::Group& group, std::vector<TileCopy> tiles,
                    const ir::TensorType& result, collective::Reduction reduction)
      : group_(group),
        tiles_(std::move(tiles)),
        count_(result.elements()),
        dtype_(result.dtype),
        reduction_(reduction) {}

  int64_t scratch_bytes() const override {
    return InPlace(tiles_) ? 0 : static_cast<int64_t>(tiles_.size()) * tiles_[0].bytes();
  }
  int64_t group_scratch_bytes() const override {
    return group_.ScratchBytes(collective::Kind::kReduceScatter, count_, dtype_, reduction_);
  }
  void SetGroupScratch(std::byte* memory, int64_t bytes) override {
    group_.SetScratch(memory, bytes);
  }

 private:
  Status Pack(const Operands& call, const Copier& copier) override {
    if (InPlace(tiles_)) return OkStatus();
    return PackAll(tiles_, Bytes(call.operands[0]), call.scratch, copier);
  }
  Status Transfer(const Operands& call) override {
    const std::byte* const blocks = InPlace(tiles_) ? Bytes(call.operands[0]) : call.scratch;
    return group_.ReduceScatter(blocks, call.results[0].data, count_, dtype_, reduction_);
  }

  collective::Group& group_;
  const std::vector<TileCopy> tiles_;  // of the operand
  const int64_t count_;
  const ir::DType dtype_;
  const collective::Reduction reduction_;
};

class AllToAllNode final : public CollectiveNode {
 public:
  AllToAllNode(collective::Group& group, std::vector<TileCopy> split, std::vector<TileCopy> concat,
               ir::DType dtype)
      : group_(group),
        split_(std::move(split)),
        concat_(std::move(concat)),
        bytes_(static_cast<int64_t>(split_.size()) * split_[0].bytes()),
        dtype_(dtype) {}

  int64_t scratch_bytes() const override {
    return packed_bytes() + (InPlace(concat_) ? 0 : bytes_);
  }

 private:
  // Scratch: packed blocks to send, then blocks received; each only where it is needed.
  int64_t packed_bytes() const { return InPlace(split_) ? 0 : bytes_; }
  std::byte* Incoming(const Operands& call) const {
    return InPlace(concat_) ? Bytes(call.results[0]) : call.scratch + packed_bytes();
  }

  Status Pack(const Operands& call, const Copier& copier) override {
    if (InPlace(split_)) return OkStatus();
    return PackAll(split_, Bytes(call.operands[0]), call.scratch, copier);
  }
  Status Transfer(const Operands& call) override {
    const std::byte* const outgoing = InPlace(split_) ? Bytes(call.operands[0]) : call.scratch;
    return group_.AllToAll(outgoing, Incoming(call), split_[0].bytes() / ir::DTypeBytes(dtype_),
                           dtype_);
  }
  Status Unpack(const Operands& call, const Copier& copier) override {
    if (InPlace(concat_)) return OkStatus();
    return UnpackAll(concat_, Incoming(call), Bytes(call.results[0]), copier);
  }

  collective::Group& group_;
  const std::vector<TileCopy> split_;   // of the operand
  const std::vector<TileCopy> concat_;  // of the result
  const int64_t bytes_;
  const ir::DType dtype_;
};

class RingShiftNode final : public CollectiveNode {
 public:
  RingShiftNode(collective::Group& group, const ir::TensorType& type, int by)
      : group_(group), count_(type.elements()), dtype_(type.dtype), by_(by) {}

  int64_t scratch_bytes() const override { return 0; }

 private:
  Status Transfer(const Operands& call) override {
    return group_.RingShift(call.operands[0].data, call.results[0].data, count_, dtype_, by_);
  }

  collective::Group& group_;
  const int64_t count_;
  const ir::DType dtype_;
  const int by_;
};

// The types of one collective node, with checks that name it.
struct CollectiveCall {
  ir::Op op;
  const ir::Attrs& attrs;
  std::vector<ir::TensorType> operands;
  std::vector<ir::TensorType> results;
  GroupRef group;

  Status Error(const std::string& message) const {
    return InvalidArgument(fmt::format("{} over {} devices, {} -> {}: {}", ir::OpName(op),
                                       group.size, operands.empty() ? "" : operands[0].ToString(),
                                       results.empty() ? "" : results[0].ToString(), message));
  }

  Result<collective::Reduction> Reduction() const {
    const std::string kind = attrs.Str("kind", "sum");
    if (kind == "sum") return collective::Reduction::kSum;
    if (kind == "max") return collective::Reduction::kMax;
    if (kind == "lse") return collective::Reduction::kLogSumExp;
    return Fail(Error(fmt::format("unknown kind '{}'; known: sum, max, lse", kind)));
  }

  // The dim of an attribute, inside the operand.
  Result<int> Dim(const char* name) const {
    const int64_t dim = attrs.Int(name, -1);
    if (dim < 0 || dim >= operands[0].rank()) {
      return Fail(Error(fmt::format("{}={} is not a dim of the operand", name, dim)));
    }
    return static_cast<int>(dim);
  }

  // The operand's type after dims grew or shrank must be the result's.
  Status RequireResult(const ir::TensorType& want) const {
    if (results[0] == want) return OkStatus();
    return Error(fmt::format("the result must be {}", want.ToString()));
  }

  Status RequireDivides(const ir::TensorType& type, int dim) const {
    if (type.dims[static_cast<size_t>(dim)] % group.size == 0) return OkStatus();
    return Error(fmt::format("dim {} does not divide by the group's size", dim));
  }
};

ir::TensorType Grown(ir::TensorType type, int dim, int64_t factor) {
  type.dims[static_cast<size_t>(dim)] *= factor;
  return type;
}

ir::TensorType Shrunk(ir::TensorType type, int dim, int64_t factor) {
  MW_CHECK(factor >= 1 && type.dims[static_cast<size_t>(dim)] % factor == 0)
      << factor << " does not divide dim " << dim << " of " << type.ToString();
  type.dims[static_cast<size_t>(dim)] /= factor;
  return type;
}

NodeResult MakeAllReduce(const CollectiveCall& call) {
  std::vector<TileCopy> tiles;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    if (call.operands[i].dtype != call.operands[0].dtype || call.results[i] != call.operands[i]) {
      return Fail(call.Error(fmt::format(
          "operand {} is {} and its result {}; a bucket has one dtype and keeps its types", i,
          call.operands[i].ToString(), call.results[i].ToString())));
    }
    tiles.push_back(WholeTile(call.operands[i]));
  }
  MW_ASSIGN_OR_RETURN(const collective::Reduction reduction, call.Reduction());
  if (call.group.size == 1) return std::make_unique<AloneNode>(std::move(tiles));
  return std::make_unique<AllReduceNode>(*call.group.group, std::move(tiles),
                                         call.operands[0].dtype, reduction);
}

NodeResult MakeAllGather(const CollectiveCall& call) {
  MW_ASSIGN_OR_RETURN(const int dim, call.Dim("dim"));
  const ir::TensorType& operand = call.operands[0];
  MW_TRY(call.RequireResult(Grown(operand, dim, call.group.size)));
  return std::make_unique<AllGatherNode>(
      *call.group.group, BlockTiles(call.results[0], dim, call.group.size), operand);
}

NodeResult MakeReduceScatter(const CollectiveCall& call) {
  MW_ASSIGN_OR_RETURN(const int dim, call.Dim("dim"));
  MW_ASSIGN_OR_RETURN(const collective::Reduction reduction, call.Reduction());
  const ir::TensorType& operand = call.operands[0];
  MW_TRY(call.RequireDivides(operand, dim));
  MW_TRY(call.RequireResult(Shrunk(operand, dim, call.group.size)));
  return std::make_unique<ReduceScatterNode>(
      *call.group.group, BlockTiles(operand, dim, call.group.size), call.results[0], reduction);
}

NodeResult MakeAllToAll(const CollectiveCall& call) {
  MW_ASSIGN_OR_RETURN(const int split, call.Dim("split_dim"));
  MW_ASSIGN_OR_RETURN(const int concat, call.Dim("concat_dim"));
  const ir::TensorType& operand = call.operands[0];
  const int64_t parts = call.group.size;
  MW_TRY(call.RequireDivides(operand, split));
  MW_TRY(call.RequireResult(Grown(Shrunk(operand, split, parts), concat, parts)));
  return std::make_unique<AllToAllNode>(*call.group.group, BlockTiles(operand, split, parts),
                                        BlockTiles(call.results[0], concat, parts), operand.dtype);
}

NodeResult MakeRingShift(const CollectiveCall& call) {
  const int64_t by = call.attrs.Int("by");
  if (by <= 0 || by >= call.group.size) return Fail(call.Error(fmt::format("by={}", by)));
  MW_TRY(call.RequireResult(call.operands[0]));
  return std::make_unique<RingShiftNode>(*call.group.group, call.operands[0], static_cast<int>(by));
}

}  // namespace

Status CollectiveNode::Run(std::span<const Tensor> operands, std::span<const Tensor> results,
                           std::byte* scratch, const Copier& copier) {
  const Operands call{operands, results, scratch};
  MW_TRY(Pack(call, copier));
  MW_TRY(Transfer(call));
  return Unpack(call, copier);
}

Status CollectiveNode::RunCopies(std::span<const Tensor> operands, std::span<const Tensor> results,
                                 std::byte* scratch, const Copier& copier) {
  const Operands call{operands, results, scratch};
  MW_TRY(Pack(call, copier));
  return Unpack(call, copier);
}

bool IsCollective(ir::Op op) {
  return op == ir::Op::kAllReduce || op == ir::Op::kAllGather || op == ir::Op::kReduceScatter ||
         op == ir::Op::kAllToAll || op == ir::Op::kRingShift;
}

NodeResult MakeCollectiveNode(const ir::Graph& graph, const ir::Node& node, GroupRef group) {
  CollectiveCall call{node.op, node.attrs, {}, {}, group};
  for (ValueId id : node.inputs) call.operands.push_back(graph.type(id));
  for (ValueId id : node.outputs) call.results.push_back(graph.type(id));
  const bool variadic = node.op == ir::Op::kAllReduce;
  if (call.operands.empty() || call.results.size() != call.operands.size() ||
      (!variadic && call.operands.size() != 1)) {
    return Fail(call.Error(
        fmt::format("{} operands and {} results", call.operands.size(), call.results.size())));
  }
  if (variadic) return MakeAllReduce(call);
  if (group.size == 1) {
    MW_TRY(call.RequireResult(call.operands[0]));
    return std::make_unique<AloneNode>(std::vector<TileCopy>{WholeTile(call.operands[0])});
  }
  if (node.op == ir::Op::kAllGather) return MakeAllGather(call);
  if (node.op == ir::Op::kReduceScatter) return MakeReduceScatter(call);
  if (node.op == ir::Op::kAllToAll) return MakeAllToAll(call);
  if (node.op == ir::Op::kRingShift) return MakeRingShift(call);
  return Fail(Internal(fmt::format("{} is not a collective", ir::OpName(node.op))));
}

}  // namespace meshwright::worker
