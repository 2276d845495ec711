#include "checkpoint/shard.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <utility>

#include "base/text.h"
#include "checkpoint/cover.h"
#include "formats/safetensors.h"

namespace meshwright::checkpoint {
namespace {

// {"wte.weight": {"saved_offsets": [0, 64]}, ..}
std::string ShardingInfo(const std::map<std::string, const BoxBytes*>& boxes) {
  std::string text = "{";
  for (const auto& [name, box] : boxes) {
    text += fmt::format("{}\"{}\": {{\"saved_offsets\": [{}]}}", text.size() > 1 ? ", " : "",
                        JsonEscape(name), fmt::join(box->box.offset, ", "));
  }
  return text + "}";
}

Result<ShardImage> MakeShard(ShardKind kind, int rank,
                             const std::map<std::string, const BoxBytes*>& boxes) {
  std::vector<formats::TensorSpec> specs;
  for (const auto& [name, box] : boxes) {
    specs.push_back({name, {box->type.dtype, box->box.size}});
  }
  MW_ASSIGN_OR_RETURN(
      formats::EncodedHeader encoded,
      formats::EncodeSafetensorsHeader(
          specs, {{"DCP_SHARDING_INFO", ShardingInfo(boxes)}, {"DCP_VERSION", "1.0"}}));
  ShardImage image;
  image.name = ShardName(kind, rank);
  image.header = std::move(encoded.bytes);
  image.bytes = static_cast<int64_t>(image.header.size());
  for (const formats::SafetensorsEntry& entry : encoded.header.entries) {
    const BoxBytes& box = *boxes.at(entry.name);
    ShardBox& stored = image.boxes.emplace_back();
    stored = {box.tensor, box.type, box.kind, {box.box, 0, image.bytes, PieceDigests(box.bytes)}};
    image.parts.push_back(box.bytes);
    image.bytes += static_cast<int64_t>(box.bytes.size());
  }
  return image;
}

}  // namespace

std::string ShardName(ShardKind kind, int rank) {
  return fmt::format("{}/shard-{:05}-model-00001-of-00001.safetensors",
                     kind == ShardKind::kWeights ? "sharded" : "state", rank + 1);
}

void AddShard(Shards& written, const ShardImage& image) {
  const auto file = static_cast<int32_t>(written.files.size());
  written.files.push_back({image.name, image.bytes});
  for (const ShardBox& box : image.boxes) {
    StoredTensor& tensor = written.tensors[box.tensor];
    tensor.type = box.type;
    tensor.kind = box.kind;
    tensor.boxes.push_back(box.stored);
    tensor.boxes.back().file = file;
  }
}

Result<std::vector<ShardImage>> MakeShards(int rank, const std::vector<BoxBytes>& boxes) {
  std::map<ShardKind, std::map<std::string, const BoxBytes*>> by_kind;
  for (const BoxBytes& box : boxes) {
    if (IsEmpty(box.box)) continue;
    const int64_t expected = Volume(box.box) * ir::DTypeBytes(box.type.dtype);
    if (static_cast<int64_t>(box.bytes.size()) != expected) {
      return Fail(
          InvalidArgument(fmt::format("box {} of '{}' has {} bytes, {} belong to it",
                                      ToText(box.box), box.tensor, box.bytes.size(), expected)));
    }
    const ShardKind kind =
        box.kind == ir::MemoryKind::kWeights ? ShardKind::kWeights : ShardKind::kState;
    if (!by_kind[kind].emplace(box.tensor, &box).second) {
      return Fail(
          InvalidArgument(fmt::format("rank {} gives two boxes of tensor '{}'", rank, box.tensor)));
    }
  }
  std::vector<ShardImage> images;
  for (const auto& [kind, of_kind] : by_kind) {
    MW_ASSIGN_OR_RETURN(ShardImage image, MakeShard(kind, rank, of_kind));
    images.push_back(std::move(image));
  }
  return images;
}

}  // namespace meshwright::checkpoint
