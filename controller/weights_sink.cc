#include "controller/weights_sink.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "ir/safetensors.h"

namespace meshwright::controller {

struct WeightsSink::File {
  std::shared_ptr<const ir::Graph> loss;
  std::map<std::string, const ir::Node*> params;
  std::unique_ptr<ir::SafetensorsWriter> writer;
};

Status WeightsSink::Open(MeshGeneration mesh_gen, const std::string& path,
                         std::shared_ptr<const ir::Graph> loss) {
  auto file = std::make_shared<File>();
  std::vector<ir::TensorSpec> tensors;
  for (NodeId id : loss->NodesOf(ir::Op::kParam)) {
    const ir::Node& param = loss->node(id);
    MW_ASSIGN_OR_RETURN(ir::ExportLayout layout,
                        ir::ExportLayoutOf(param, loss->type(param.outputs[0])));
    tensors.push_back(ir::TensorSpec{layout.name, layout.type});
    file->params[param.attrs.Str("name")] = &param;
  }
  MW_ASSIGN_OR_RETURN(file->writer, ir::SafetensorsWriter::Create(path, tensors));
  file->loss = std::move(loss);
  std::scoped_lock lock(mutex_);
  files_[mesh_gen.value()] = std::move(file);
  return OkStatus();
}

Result<std::shared_ptr<WeightsSink::File>> WeightsSink::Find(MeshGeneration mesh_gen) {
  std::scoped_lock lock(mutex_);
  const auto it = files_.find(mesh_gen.value());
  if (it == files_.end()) {
    return Fail(NotFound(
        fmt::format("no weights are being saved for mesh generation {}", mesh_gen.value())));
  }
  return it->second;
}

Status WeightsSink::Write(const proto::WeightTile& tile) {
  MW_ASSIGN_OR_RETURN(auto file, Find(tile.mesh_gen));
  const auto param = file->params.find(tile.param);
  if (param == file->params.end()) {
    return NotFound(fmt::format("the model has no weight '{}'", tile.param));
  }
  const ir::TensorType& logical = file->loss->type(param->second->outputs[0]);
  ir::TensorType local{logical.dtype, tile.box.size.empty() ? logical.dims : tile.box.size};
  const bool sizes_fit = tile.box.size.size() == tile.box.offset.size() &&
                         (tile.box.size.empty() || tile.box.size.size() == logical.dims.size());
  if (!sizes_fit || tile.dtype != logical.dtype ||
      local.bytes() != static_cast<int64_t>(tile.data.size())) {
    return InvalidArgument(fmt::format("tile of '{}': {} bytes for {} of {}", tile.param,
                                       tile.data.size(), local.ToString(), logical.ToString()));
  }
  return ir::WriteLogicalTile(*file->writer, *param->second, logical, tile.box, tile.data);
}

Status WeightsSink::Finish(MeshGeneration mesh_gen) {
  MW_ASSIGN_OR_RETURN(auto file, Find(mesh_gen));
  Discard(mesh_gen);
  return file->writer->Finish();
}

void WeightsSink::Discard(MeshGeneration mesh_gen) {
  std::scoped_lock lock(mutex_);
  files_.erase(mesh_gen.value());
}

}  // namespace meshwright::controller
