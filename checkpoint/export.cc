#include "checkpoint/export.h"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/half.h"
#include "formats/safetensors.h"

namespace meshwright::checkpoint {
namespace {

template <typename T>
T Load(std::span<const std::byte> bytes, size_t index) {
  T value;
  MW_CHECK((index + 1) * sizeof(T) <= bytes.size()) << "element " << index;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void Store(std::vector<std::byte>& bytes, size_t index, T value) {
  std::memcpy(bytes.data() + index * sizeof(T), &value, sizeof(T));
}

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

double ElementAt(std::span<const std::byte> bytes, ir::DType dtype, size_t index) {
  switch (dtype) {
    case ir::DType::kF64:
      return Load<double>(bytes, index);
    case ir::DType::kF32:
      return Load<float>(bytes, index);
    case ir::DType::kBF16:
      return Bf16ToFloat(Load<uint16_t>(bytes, index));
    case ir::DType::kF16:
      return F16ToFloat(Load<uint16_t>(bytes, index));
    case ir::DType::kI64:
      return static_cast<double>(Load<int64_t>(bytes, index));
    case ir::DType::kI32:
      return Load<int32_t>(bytes, index);
    case ir::DType::kBool:
      return Load<uint8_t>(bytes, index);
  }
  return 0;
}

std::vector<std::byte> ConvertFloats(std::span<const std::byte> bytes, ir::DType from,
                                     ir::DType to) {
  if (from == to) return {bytes.begin(), bytes.end()};
  const size_t count = bytes.size() / static_cast<size_t>(ir::DTypeBytes(from));
  std::vector<std::byte> converted(count * static_cast<size_t>(ir::DTypeBytes(to)));
  for (size_t i = 0; i < count; ++i) {
    const double value = ElementAt(bytes, from, i);
    if (to == ir::DType::kF64) {
      Store(converted, i, value);
    } else if (to == ir::DType::kF32) {
      Store(converted, i, static_cast<float>(value));
    } else if (to == ir::DType::kBF16) {
      Store(converted, i, FloatToBf16(static_cast<float>(value)));
    } else {
      Store(converted, i, FloatToF16(static_cast<float>(value)));
    }
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
