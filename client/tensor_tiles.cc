#include "client/tensor_tiles.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace meshwright::client {
namespace {

Status CheckTile(const proto::TensorTile& tile) {
  const ir::Dims& dims = tile.type.dims;
  bool fits = tile.box.offset.size() == dims.size() && tile.box.size.size() == dims.size();
  int64_t elements = 1;
  for (size_t d = 0; fits && d < dims.size(); ++d) {
    fits = tile.box.offset[d] >= 0 && tile.box.size[d] >= 0 &&
           tile.box.offset[d] <= dims[d] - tile.box.size[d];
    elements *= tile.box.size[d];
  }
  fits =
      fits && static_cast<int64_t>(tile.bytes.size()) == elements * ir::DTypeBytes(tile.type.dtype);
  if (fits) return OkStatus();
  return DataLoss(
      fmt::format("a block of \"{}\" {} does not fit it", tile.name, tile.type.ToString()));
}

// Runs along the last dim are contiguous in both.
void Place(const proto::TensorTile& tile, Tensor& tensor) {
  const ir::Dims& dims = tile.type.dims;
  const size_t rank = dims.size();
  const auto element = static_cast<size_t>(ir::DTypeBytes(tile.type.dtype));
  const size_t run = rank == 0 ? element : static_cast<size_t>(tile.box.size[rank - 1]) * element;
  if (tile.bytes.empty()) return;
  ir::Dims index(rank, 0);
  for (size_t at = 0; at < tile.bytes.size(); at += run) {
    int64_t flat = 0;
    for (size_t d = 0; d < rank; ++d) flat = flat * dims[d] + tile.box.offset[d] + index[d];
    std::memcpy(tensor.data.data() + static_cast<size_t>(flat) * element, tile.bytes.data() + at,
                run);
    for (size_t d = rank < 2 ? 0 : rank - 1; d-- > 0;) {
      if (++index[d] < tile.box.size[d]) break;
      index[d] = 0;
    }
  }
}

}  // namespace

Result<std::map<std::string, Tensor>> AssembleTiles(const std::vector<proto::TensorTile>& tiles) {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, size_t> placed_bytes;
  for (const proto::TensorTile& tile : tiles) {
    const auto [it, fresh] = tensors.try_emplace(tile.name, Tensor{tile.type, {}});
    if (!fresh && it->second.type != tile.type) {
      return Fail(DataLoss(fmt::format("blocks of \"{}\" are of {} and of {}", tile.name,
                                       it->second.type.ToString(), tile.type.ToString())));
    }
    MW_TRY(CheckTile(tile));
    it->second.data.resize(static_cast<size_t>(tile.type.bytes()));
    Place(tile, it->second);
    placed_bytes[tile.name] += tile.bytes.size();
  }
  // Blocks that fit and have as many bytes as the tensor cover it, unless two overlap: each block
  // is sent by one device only.
  for (const auto& [name, tensor] : tensors) {
    if (placed_bytes[name] == tensor.data.size()) continue;
    return Fail(
        DataLoss(fmt::format("the blocks of \"{}\" have {} bytes, {} has {}", name,
                             placed_bytes[name], tensor.type.ToString(), tensor.data.size())));
  }
  return tensors;
}

}  // namespace meshwright::client
