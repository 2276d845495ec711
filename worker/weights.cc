#include "worker/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

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
      std::vector<std::byte> block(static_cast<size_t>(slot.type.bytes()));
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
      if (slot.kind != ir::MemoryKind::kWeights) continue;
      const auto param = params.find(name);
      if (param == params.end()) {
        return Internal(fmt::format("the model has no weight '{}' of rank {}", name, rank));
      }
      const ir::TensorType& logical = loss.type(param->second->outputs[0]);
      MW_ASSIGN_OR_RETURN(std::vector<std::byte> tile,
                          formats::ReadLogicalTile(file, *param->second, logical, slot.box));
      MW_TRY(runtime.WritePersistent(rank, name, tile));
    }
  }
  return OkStatus();
}

ControllerLink::TileSource MakeTileSource(MeshGeneration mesh_gen,
                                          const std::vector<proto::RankTiles>& ranks,
                                          const StateSlots& slots, JobRuntime& runtime) {
  auto todo = std::make_shared<std::vector<std::pair<int, std::string>>>();
  for (const proto::RankTiles& rank : ranks) {
    for (const std::string& slot : rank.slots) todo->emplace_back(rank.rank, slot);
  }
  auto next = std::make_shared<size_t>(0);
  return [todo, next, mesh_gen, &slots, &runtime]() -> Result<std::optional<proto::WeightTile>> {
    if (*next == todo->size()) return std::optional<proto::WeightTile>();
    const auto& [rank, name] = (*todo)[(*next)++];
    const auto of_rank = slots.find(rank);
    if (of_rank == slots.end() || !of_rank->second.contains(name)) {
      return Fail(NotFound(fmt::format("rank {} holds no weight '{}'", rank, name)));
    }
    MW_ASSIGN_OR_RETURN(ops::HostTensor tensor, runtime.ReadPersistent(rank, name));
    proto::WeightTile tile;
    tile.mesh_gen = mesh_gen;
    tile.param = name;
    tile.dtype = tensor.type.dtype;
    tile.box = of_rank->second.at(name).box;
    tile.data = std::move(tensor.data);
    return std::optional<proto::WeightTile>(std::move(tile));
  };
}

}  // namespace meshwright::worker
