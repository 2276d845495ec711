#include "checkpoint/export.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "base/failpoint.h"
#include "base/file.h"
#include "checkpoint/folder.h"
#include "formats/adapters.h"
#include "formats/safetensors.h"
#include "ir/averages.h"
#include "ir/element_value.h"

namespace meshwright::checkpoint {
namespace {

// A param and where its weight is in the checkpoint.
struct Exported {
  const ir::Node* param = nullptr;
  std::string stored_name = {};
  const StoredTensor* stored = nullptr;
  ir::TensorType type;  // logical, as written
  formats::ExportLayout layout;
};

Result<std::map<std::string, Exported>> FindWeights(const Manifest& manifest,
                                                    const ir::Graph& model,
                                                    std::optional<ir::DType> dtype,
                                                    ExportedWeights which) {
  std::map<std::string, Exported> weights;
  bool any_average = false;
  for (const NodeId id : model.NodesOf(ir::Op::kParam)) {
    const ir::Node& param = model.node(id);
    const std::string name = param.attrs.Str("name");
    const ir::TensorType& logical = model.type(param.outputs[0]);
    auto it = manifest.tensors.find(name);
    if (which == ExportedWeights::kAverages) {
      const auto average = manifest.tensors.find(ir::kAveragePrefix + name);
      if (average != manifest.tensors.end()) it = average;
      any_average = any_average || average != manifest.tensors.end();
    }
    if (it == manifest.tensors.end() || it->second.type != logical) {
      return Fail(InvalidArgument(fmt::format(
          "the model's weight '{}' {} is {} in the checkpoint", name, logical.ToString(),
          it == manifest.tensors.end() ? "not" : it->second.type.ToString())));
    }
    Exported exported{&param, it->first, &it->second, logical, {}};
    if (dtype && ir::IsFloating(logical.dtype)) exported.type.dtype = *dtype;
    MW_ASSIGN_OR_RETURN(exported.layout, formats::ExportLayoutOf(param, exported.type));
    weights.emplace(name, std::move(exported));
  }
  if (which == ExportedWeights::kAverages && !any_average) {
    return Fail(InvalidArgument(
        "the checkpoint has no means of weights; training.ema_decay makes a job keep them"));
  }
  return weights;
}

}  // namespace

std::vector<std::byte> ConvertFloats(std::span<const std::byte> bytes, ir::DType from,
                                     ir::DType to) {
  if (from == to) return {bytes.begin(), bytes.end()};
  const auto from_bytes = static_cast<size_t>(ir::DTypeBytes(from));
  const auto to_bytes = static_cast<size_t>(ir::DTypeBytes(to));
  const size_t count = bytes.size() / from_bytes;
  std::vector<std::byte> converted(count * to_bytes);
  for (size_t i = 0; i < count; ++i) {
    ir::StoreElement(converted.data() + i * to_bytes, to,
                     ir::LoadElement(bytes.data() + i * from_bytes, from));
  }
  return converted;
}

namespace {

using Weights = std::map<std::string, Exported>;

// These weights as one file.
Status WriteWeights(Reader& reader, const Weights& weights, const std::string& path,
                    const std::map<std::string, std::string>& metadata) {
  std::vector<formats::ExportLayout> layouts;
  for (const auto& [name, weight] : weights) layouts.push_back(weight.layout);
  MW_ASSIGN_OR_RETURN(const std::vector<formats::TensorSpec> specs, formats::TensorsOf(layouts));
  MW_ASSIGN_OR_RETURN(const auto writer, formats::SafetensorsWriter::Create(path, specs, metadata));
  for (const auto& [name, weight] : weights) {
    for (const StoredBox& stored : weight.stored->boxes) {
      MW_ASSIGN_OR_RETURN(std::vector<std::byte> bytes,
                          reader.ReadBox(weight.stored_name, weight.stored->type, stored.box));
      bytes = ConvertFloats(bytes, weight.stored->type.dtype, weight.type.dtype);
      MW_TRY(formats::WriteLogicalTile(*writer, *weight.param, weight.type, stored.box, bytes));
    }
  }
  return writer->Finish();
}

// In the order of the tensors' names, as many in a file as fit; the params of a tensor stay
// together.
std::vector<Weights> CutIntoFiles(const Weights& weights, int64_t most_bytes) {
  std::map<std::string, Weights> tensors;
  for (const auto& [name, weight] : weights) tensors[weight.layout.name].emplace(name, weight);
  std::vector<Weights> files(1);
  int64_t bytes = 0;
  for (auto& [tensor, params] : tensors) {
    const formats::ExportLayout& layout = params.begin()->second.layout;
    const int64_t more = layout.type.bytes() * layout.tensors();
    if (!files.back().empty() && bytes + more > most_bytes) {
      files.emplace_back();
      bytes = 0;
    }
    bytes += more;
    files.back().merge(params);
  }
  return files;
}

// The files of a save, whose manifest is not written yet.
class SaveSource final : public ByteSource {
 public:
  SaveSource(std::string temporary, std::string manifest)
      : files_(std::move(temporary)), manifest_(std::move(manifest)) {}
  Status Read(const std::string& file, int64_t offset, std::span<std::byte> into) override {
    return files_.Read(file, offset, into);
  }
  Result<std::string> ReadAll(const std::string& file) override {
    return file == kManifestName ? manifest_ : files_.ReadAll(file);
  }

 private:
  FolderSource files_;
  const std::string manifest_;
};

}  // namespace

Status ExportWeights(Reader& reader, const ir::Graph& model, const std::string& path,
                     std::optional<ir::DType> dtype, ExportedWeights which) {
  MW_ASSIGN_OR_RETURN(const Weights weights, FindWeights(reader.manifest(), model, dtype, which));
  return WriteWeights(reader, weights, path, formats::AdapterMetadata(model));
}

namespace {

// Of a model with adapters: the weights with these added, and beside them the adapters alone.
Status ExportTuned(Reader& reader, const ir::Graph& model, const std::string& folder,
                   std::optional<ir::DType> dtype, ExportedWeights which) {
  MW_ASSIGN_OR_RETURN(const TempDir temporary, TempDir::Make("meshwright-tuned"));
  const std::string path = temporary.File("tuned.safetensors");
  MW_TRY(ExportWeights(reader, model, path, std::nullopt, which));
  MW_ASSIGN_OR_RETURN(const auto tuned, formats::SafetensorsFile::Open(path));
  MW_TRY(formats::WriteAdapter(*tuned, folder + "/adapter", ""));
  return formats::MergeAdapter(*tuned, folder + "/model.safetensors", dtype);
}

}  // namespace

Status ExportFolder(Reader& reader, const ir::Graph& model, const std::string& folder,
                    std::optional<ir::DType> dtype, int64_t most_file_bytes,
                    ExportedWeights which) {
  MW_TRY(MakeDirs(folder));
  if (!formats::AdapterMetadata(model).empty()) {
    return ExportTuned(reader, model, folder, dtype, which);
  }
  MW_ASSIGN_OR_RETURN(const Weights weights, FindWeights(reader.manifest(), model, dtype, which));
  const std::vector<Weights> files = CutIntoFiles(weights, most_file_bytes);
  if (files.size() == 1) return WriteWeights(reader, weights, folder + "/model.safetensors", {});
  nlohmann::ordered_json index = {{"metadata", nlohmann::ordered_json::object()},
                                  {"weight_map", nlohmann::ordered_json::object()}};
  int64_t total_bytes = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
    MW_TRY(WriteWeights(reader, files[i], folder + "/" + name, {}));
    for (const auto& [param, weight] : files[i]) {
      const formats::ExportLayout& layout = weight.layout;
      if (layout.base == 0) total_bytes += layout.type.bytes() * layout.tensors();
      for (int64_t part = 0; part < layout.tensors(); ++part) {
        index["weight_map"][layout.NameOf(part)] = name;
      }
    }
  }
  index["metadata"]["total_size"] = total_bytes;
  return WriteFileAtomic(folder + "/model.safetensors.index.json", index.dump(2) + "\n");
}

Status ExportSave(const std::string& temporary, const Manifest& manifest, const ir::Graph& model,
                  ir::DType dtype) {
  MW_ASSIGN_OR_RETURN(const auto reader, Reader::Open(std::make_unique<SaveSource>(
                                             temporary, FormatManifest(manifest))));
  const Status status = ExportFolder(*reader, model, temporary + "/" + kExportName, dtype);
  MW_FAILPOINT("checkpoint.export.written");
  return status.WithContext("writing the weights");
}

}  // namespace meshwright::checkpoint
