#include "worker/weights.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

namespace meshwright::worker {

WeightSlots CollectWeightSlots(const std::vector<ir::Program>& programs) {
  WeightSlots slots;
  for (const ir::Program& program : programs) {
    for (const ir::Slot& slot : program.slots) {
      if (!slot.persistent || slot.kind != ir::MemoryKind::kWeights) continue;
      slots[program.device.value()].emplace(slot.name, slot);
    }
  }
  return slots;
}

Result<std::shared_ptr<const formats::SafetensorsFile>> OpenWeights(const FilePlaces& places,
                                                                    const ir::FileRef& file) {
  const auto opener = [&](const ir::FileRef& ref) { return OpenJobFile(places, ref); };
  MW_TRY(data::FileSet::Open({file}, opener));
  MW_ASSIGN_OR_RETURN(const UniqueFd opened, OpenJobFile(places, file));
  return formats::SafetensorsFile::OpenDescriptor(opened.get(), file.blob.name);
}

Status LoadWeights(const formats::SafetensorsFile& file, const ir::Graph& loss,
                   const WeightSlots& slots, JobRuntime& runtime) {
  std::map<std::string, const ir::Node*> params;
  for (NodeId id : loss.NodesOf(ir::Op::kParam)) {
    params[loss.node(id).attrs.Str("name")] = &loss.node(id);
  }
  for (const auto& [rank, rank_slots] : slots) {
    for (const auto& [name, slot] : rank_slots) {
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
                                          const WeightSlots& slots, JobRuntime& runtime) {
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
