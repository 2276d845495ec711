#include "worker/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/check.h"
#include "checkpoint/cover.h"
#include "ir/averages.h"
#include "worker/tile_copy.h"

namespace meshwright::worker {

StateSlots CollectStateSlots(const std::vector<ir::Program>& programs) {
  StateSlots slots;
  for (const ir::Program& program : programs) {
    for (const ir::Slot& slot : program.slots) {
      if (!slot.persistent) continue;
      slots[program.device.value()].emplace(slot.name, slot);
    }
  }
  return slots;
}

Result<std::vector<proto::TensorTile>> ReadTiles(const std::vector<proto::RankTiles>& ranks,
                                                 const StateSlots& slots, JobRuntime& runtime) {
  std::vector<proto::TensorTile> tiles;
  for (const proto::RankTiles& rank : ranks) {
    const auto of_rank = slots.find(rank.rank);
    for (const std::string& name : rank.slots) {
      if (of_rank == slots.end() || !of_rank->second.contains(name)) {
        return Fail(NotFound(fmt::format("rank {} holds no tensor '{}'", rank.rank, name)));
      }
      const ir::Slot& slot = of_rank->second.at(name);
      MW_ASSIGN_OR_RETURN(const ops::HostTensor tensor, runtime.ReadPersistent(rank.rank, name));
      std::string bytes(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size());
      tiles.push_back({name, {slot.type.dtype, slot.global_dims}, slot.box, std::move(bytes)});
    }
  }
  return tiles;
}

Status WriteTensors(const std::vector<proto::NamedTensor>& tensors, const StateSlots& slots,
                    JobRuntime& runtime) {
  for (const proto::NamedTensor& tensor : tensors) {
    for (const auto& [rank, rank_slots] : slots) {
      const auto it = rank_slots.find(tensor.name);
      if (it == rank_slots.end()) continue;
      const ir::Slot& slot = it->second;
      const ir::TensorType whole{slot.type.dtype, slot.global_dims};
      if (tensor.type != whole || static_cast<int64_t>(tensor.bytes.size()) != whole.bytes()) {
        return InvalidArgument(fmt::format("tensor '{}' is {} of {} bytes; the state has {}",
                                           tensor.name, tensor.type.ToString(), tensor.bytes.size(),
                                           whole.ToString()));
      }
      const TileCopy tile(whole.dims, slot.box, ir::DTypeBytes(whole.dtype));
      std::vector<std::byte> block(static_cast<size_t>(slot.part().bytes()));
      if (block.empty()) continue;
      const auto* const data = reinterpret_cast<const std::byte*>(tensor.bytes.data());
      if (tile.contiguous()) {
        std::copy_n(data + tile.offset_bytes(), block.size(), block.data());
      } else {
        MW_TRY(tile.Pack(data, block.data(), static_cast<ThreadTeam*>(nullptr)));
      }
      MW_TRY(runtime.WritePersistent(rank, tensor.name, block));
    }
  }
  return OkStatus();
}

Result<std::shared_ptr<const formats::SafetensorsFile>> OpenWeights(const FilePlaces& places,
                                                                    const ir::FileRef& file) {
  const auto opener = [&](const ir::FileRef& ref) { return OpenJobFile(places, ref); };
  MW_TRY(data::FileSet::Open({file}, opener));
  MW_ASSIGN_OR_RETURN(const UniqueFd opened, OpenJobFile(places, file));
  return formats::SafetensorsFile::OpenDescriptor(opened.get(), file.blob.name);
}

Status LoadWeights(const formats::SafetensorsFile& file, const ir::Graph& loss,
                   const StateSlots& slots, JobRuntime& runtime) {
  std::map<std::string, const ir::Node*> params;
  for (NodeId id : loss.NodesOf(ir::Op::kParam)) {
    params[loss.node(id).attrs.Str("name")] = &loss.node(id);
  }
  for (const auto& [rank, rank_slots] : slots) {
    for (const auto& [name, slot] : rank_slots) {
      const std::string averaged = ir::AveragedParam(name);
      if (slot.kind != ir::MemoryKind::kWeights && averaged.empty()) continue;
      const auto param = params.find(averaged.empty() ? name : averaged);
      if (param == params.end()) {
        return Internal(fmt::format("the model has no weight '{}' of rank {}", name, rank));
      }
      const ir::TensorType& logical = loss.type(param->second->outputs[0]);
      const auto read = [&, &box = slot.box](std::span<std::byte> into) {
        return formats::ReadLogicalTile(file, *param->second, logical, box, into);
      };
      const Status filled = runtime.FillPersistent(rank, name, read);
      const bool drawn =
          filled.code() == StatusCode::kNotFound && formats::MayBeDrawn(*param->second);
      if (!drawn) MW_TRY(filled);
    }
  }
  return OkStatus();
}

namespace {

// Parts of a box that lie in one piece each in its row-major order, of so many bytes at most.
class BoxCutter {
 public:
  BoxCutter() = default;
  // REQUIRES offset and size for every dim; an element is not cut.
  BoxCutter(ir::Box box, int64_t element_bytes, int64_t most_bytes) : box_(std::move(box)) {
    rows_ = std::max<int64_t>(1, most_bytes / std::max<int64_t>(1, element_bytes));
    left_ = 1;
    for (const int64_t size : box_.size) left_ *= size;
    // Dims behind the cut one stay whole.
    while (cut_ + 1 < box_.size.size() && Inner(cut_ + 1) > rows_) ++cut_;
    rows_ = std::max<int64_t>(1, rows_ / std::max<int64_t>(1, Inner(cut_ + 1)));
    at_.assign(box_.size.size(), 0);
  }

  // Nothing behind the last one.
  std::optional<ir::Box> Next() {
    if (left_ <= 0) return std::nullopt;
    ir::Box part = box_;
    for (size_t d = 0; d < cut_; ++d) part.size[d] = 1;
    if (!at_.empty()) part.size[cut_] = std::min(rows_, box_.size[cut_] - at_[cut_]);
    int64_t elements = 1;
    for (size_t d = 0; d < at_.size(); ++d) {
      part.offset[d] += at_[d];
      elements *= part.size[d];
    }
    left_ -= elements;
    if (!at_.empty()) Advance(part.size[cut_]);
    return part;
  }

 private:
  // Elements of the dims from `dim` on.
  int64_t Inner(size_t dim) const {
    int64_t elements = 1;
    for (size_t d = dim; d < box_.size.size(); ++d) elements *= box_.size[d];
    return elements;
  }
  void Advance(int64_t rows) {
    at_[cut_] += rows;
    for (size_t d = cut_; d > 0 && at_[d] == box_.size[d]; --d) {
      at_[d] = 0;
      ++at_[d - 1];
    }
  }

  ir::Box box_;
  size_t cut_ = 0;    // the dim that is cut; of those before it a part has one row
  int64_t rows_ = 0;  // of that dim, in a part
  int64_t left_ = 0;  // elements
  std::vector<int64_t> at_;
};

// One tensor after the other, each in parts: who takes them holds no more than a part of each
// worker.
class TileCutter {
 public:
  TileCutter(MeshGeneration mesh_gen, const std::vector<proto::RankTiles>& ranks,
             const StateSlots& slots, JobRuntime& runtime)
      : mesh_gen_(mesh_gen), slots_(slots), runtime_(runtime) {
    for (const proto::RankTiles& rank : ranks) {
      for (const std::string& slot : rank.slots) todo_.emplace_back(rank.rank, slot);
    }
  }

  Result<std::optional<proto::WeightTile>> Next() {
    while (true) {
      if (std::optional<ir::Box> box = parts_.Next()) return PartOf(*std::move(box));
      if (next_ == todo_.size()) return std::optional<proto::WeightTile>();
      MW_TRY(Begin(todo_[next_++]));
    }
  }

 private:
  Status Begin(const std::pair<int, std::string>& which) {
    const auto& [rank, name] = which;
    const auto of_rank = slots_.find(rank);
    if (of_rank == slots_.end() || !of_rank->second.contains(name)) {
      return NotFound(fmt::format("rank {} holds no weight '{}'", rank, name));
    }
    const ir::Slot& slot = of_rank->second.at(name);
    MW_ASSIGN_OR_RETURN(tensor_, runtime_.ReadPersistent(rank, name));
    name_ = name;
    at_ = 0;
    parts_ = BoxCutter(checkpoint::Explicit(slot.box, slot.global_dims),
                       ir::DTypeBytes(tensor_.type.dtype), kTileBytes);
    return OkStatus();
  }

  std::optional<proto::WeightTile> PartOf(ir::Box box) {
    proto::WeightTile tile;
    tile.mesh_gen = mesh_gen_;
    tile.param = name_;
    tile.dtype = tensor_.type.dtype;
    const auto bytes =
        static_cast<size_t>(checkpoint::Volume(box) * ir::DTypeBytes(tensor_.type.dtype));
    MW_CHECK(bytes <= tensor_.data.size() - at_) << "parts of " << name_ << " are more than it";
    const auto begin = tensor_.data.begin() + static_cast<ptrdiff_t>(at_);
    tile.data.assign(begin, begin + static_cast<ptrdiff_t>(bytes));
    at_ += bytes;
    tile.box = std::move(box);
    return tile;
  }

  const MeshGeneration mesh_gen_;
  const StateSlots& slots_;
  JobRuntime& runtime_;
  std::vector<std::pair<int, std::string>> todo_;  // rank and slot
  size_t next_ = 0;
  std::string name_;
  ops::HostTensor tensor_;
  size_t at_ = 0;  // of its bytes: where the next part begins
  BoxCutter parts_;
};

}  // namespace

ControllerLink::TileSource MakeTileSource(MeshGeneration mesh_gen,
                                          const std::vector<proto::RankTiles>& ranks,
                                          const StateSlots& slots, JobRuntime& runtime) {
  auto cutter = std::make_shared<TileCutter>(mesh_gen, ranks, slots, runtime);
  return [cutter] { return cutter->Next(); };
}

}  // namespace meshwright::worker
