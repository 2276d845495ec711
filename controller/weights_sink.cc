#include "controller/weights_sink.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>
#include <vector>

#include "formats/adapters.h"
#include "formats/safetensors.h"

namespace meshwright::controller {

struct WeightsSink::File {
  std::shared_ptr<const ir::Graph> loss;
  std::map<std::string, const ir::Node*> params;
  std::unique_ptr<formats::SafetensorsWriter> writer;
};

Status WeightsSink::Open(MeshGeneration mesh_gen, const std::string& path,
                         std::shared_ptr<const ir::Graph> loss) {
  auto file = std::make_shared<File>();
  std::vector<formats::ExportLayout> layouts;
  for (NodeId id : loss->NodesOf(ir::Op::kParam)) {
    const ir::Node& param = loss->node(id);
    MW_ASSIGN_OR_RETURN(formats::ExportLayout layout,
                        formats::ExportLayoutOf(param, loss->type(param.outputs[0])));
    layouts.push_back(std::move(layout));
    file->params[param.attrs.Str("name")] = &param;
  }
  MW_ASSIGN_OR_RETURN(const std::vector<formats::TensorSpec> tensors, formats::TensorsOf(layouts));
  MW_ASSIGN_OR_RETURN(file->writer, formats::SafetensorsWriter::Create(
                                        path, tensors, formats::AdapterMetadata(*loss)));
  file->loss = std::move(loss);
  const MutexLock lock(mutex_);
  files_[mesh_gen.value()] = std::move(file);
  return OkStatus();
}

Result<std::shared_ptr<WeightsSink::File>> WeightsSink::Find(MeshGeneration mesh_gen) {
  const MutexLock lock(mutex_);
  const auto it = files_.find(mesh_gen.value());
  if (it == files_.end()) {
    return Fail(NotFound(
        fmt::format("no weights are being saved for mesh generation {}", mesh_gen.value())));
  }
  return it->second;
}

Result<int64_t> WeightsSink::ExpectedBytes(const proto::WeightTile& head) {
  MW_ASSIGN_OR_RETURN(auto file, Find(head.mesh_gen));
  return ExpectedBytesIn(*file, head);
}

Result<int64_t> WeightsSink::ExpectedBytesIn(const File& file, const proto::WeightTile& head) {
  const auto param = file.params.find(head.param);
  if (param == file.params.end()) {
    return Fail(NotFound(fmt::format("the model has no weight '{}'", head.param)));
  }
  const ir::TensorType& logical = file.loss->type(param->second->outputs[0]);
  const auto& [offset, size] = head.box;
  bool fits = head.dtype == logical.dtype && offset.size() == size.size() &&
              (size.empty() || size.size() == logical.dims.size());
  for (size_t d = 0; fits && d < size.size(); ++d) {
    fits = size[d] >= 0 && size[d] <= logical.dims[d] && offset[d] >= 0 &&
           offset[d] <= logical.dims[d] - size[d];
  }
  if (!fits) {
    return Fail(InvalidArgument(fmt::format("tile of '{}': a box of {} at [{}] does not fit {}",
                                            head.param, ir::TensorType{head.dtype, size}.ToString(),
                                            fmt::join(offset, ","), logical.ToString())));
  }
  return ir::TensorType{logical.dtype, size.empty() ? logical.dims : size}.bytes();
}

Status WeightsSink::Write(const proto::WeightTile& tile) {
  MW_ASSIGN_OR_RETURN(auto file, Find(tile.mesh_gen));
  MW_ASSIGN_OR_RETURN(const int64_t expected, ExpectedBytesIn(*file, tile));
  if (expected != static_cast<int64_t>(tile.data.size())) {
    return InvalidArgument(fmt::format("tile of '{}': {} bytes came, {} belong to it", tile.param,
                                       tile.data.size(), expected));
  }
  const ir::Node& param = *file->params.at(tile.param);
  return formats::WriteLogicalTile(*file->writer, param, file->loss->type(param.outputs[0]),
                                   tile.box, tile.data);
}

Status WeightsSink::Finish(MeshGeneration mesh_gen) {
  MW_ASSIGN_OR_RETURN(auto file, Find(mesh_gen));
  Discard(mesh_gen);
  return file->writer->Finish();
}

void WeightsSink::Discard(MeshGeneration mesh_gen) {
  const MutexLock lock(mutex_);
  files_.erase(mesh_gen.value());
}

}  // namespace meshwright::controller
