#include "checkpoint/export.h"

#include <fmt/format.h>

#include <map>
#include <utility>
#include <vector>

#include "formats/safetensors.h"
#include "ir/element_value.h"

namespace meshwright::checkpoint {
namespace {

// A param and where its weight is in the checkpoint.
struct Exported {
  const ir::Node* param = nullptr;
  const StoredTensor* stored = nullptr;
  ir::TensorType type;  // logical, as written
};

Result<std::map<std::string, Exported>> FindWeights(const Manifest& manifest,
                                                    const ir::Graph& model,
                                                    std::optional<ir::DType> dtype) {
  std::map<std::string, Exported> weights;
  for (const NodeId id : model.NodesOf(ir::Op::kParam)) {
    const ir::Node& param = model.node(id);
    const std::string name = param.attrs.Str("name");
    const ir::TensorType& logical = model.type(param.outputs[0]);
    const auto it = manifest.tensors.find(name);
    if (it == manifest.tensors.end() || it->second.type != logical) {
      return Fail(InvalidArgument(fmt::format(
          "the model's weight '{}' {} is {} in the checkpoint", name, logical.ToString(),
          it == manifest.tensors.end() ? "not" : it->second.type.ToString())));
    }
    Exported exported{&param, &it->second, logical};
    if (dtype && ir::IsFloating(logical.dtype)) exported.type.dtype = *dtype;
    weights.emplace(name, std::move(exported));
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

Status ExportWeights(Reader& reader, const ir::Graph& model, const std::string& path,
                     std::optional<ir::DType> dtype) {
  MW_ASSIGN_OR_RETURN(const auto weights, FindWeights(reader.manifest(), model, dtype));
  std::vector<formats::TensorSpec> specs;
  for (const auto& [name, weight] : weights) {
    MW_ASSIGN_OR_RETURN(formats::ExportLayout layout,
                        formats::ExportLayoutOf(*weight.param, weight.type));
    specs.push_back({std::move(layout.name), std::move(layout.type)});
  }
  MW_ASSIGN_OR_RETURN(const auto writer, formats::SafetensorsWriter::Create(path, specs));
  for (const auto& [name, weight] : weights) {
    for (const StoredBox& stored : weight.stored->boxes) {
      MW_ASSIGN_OR_RETURN(std::vector<std::byte> bytes,
                          reader.ReadBox(name, weight.stored->type, stored.box));
      bytes = ConvertFloats(bytes, weight.stored->type.dtype, weight.type.dtype);
      MW_TRY(formats::WriteLogicalTile(*writer, *weight.param, weight.type, stored.box, bytes));
    }
  }
  return writer->Finish();
}

}  // namespace meshwright::checkpoint
