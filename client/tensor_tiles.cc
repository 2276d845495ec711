#include "client/tensor_tiles.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

namespace meshwright::client {
namespace {

using proto::Largest;
using proto::TensorTile;

int64_t Elements(const ir::Dims& dims) {
  int64_t elements = 1;
  for (const int64_t dim : dims) elements *= dim;
  return elements;
}

// Of a block of the largest values.
int64_t Rows(const TensorTile& tile) {
  return Elements({tile.box.size.begin(), std::prev(tile.box.size.end())});
}

Status CheckTile(const TensorTile& tile) {
  const ir::Dims& dims = tile.type.dims;
  bool fits = tile.box.offset.size() == dims.size() && tile.box.size.size() == dims.size();
  for (size_t d = 0; fits && d < dims.size(); ++d) {
    fits = tile.box.offset[d] >= 0 && tile.box.size[d] >= 0 &&
           tile.box.offset[d] <= dims[d] - tile.box.size[d];
  }
  if (fits && tile.largest) {
    fits = proto::HasLargest(tile.type) &&
           tile.bytes.size() == static_cast<size_t>(Rows(tile)) * sizeof(Largest);
  } else if (fits) {
    fits = static_cast<int64_t>(tile.bytes.size()) ==
           Elements(tile.box.size) * ir::DTypeBytes(tile.type.dtype);
  }
  if (fits) return OkStatus();
  return DataLoss(
      fmt::format("a block of \"{}\" {} does not fit it", tile.name, tile.type.ToString()));
}

// Runs along the last dim are contiguous in both.
void Place(const TensorTile& tile, Tensor& tensor) {
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

// A tensor out of its blocks.
struct Assembly {
  Tensor tensor;                 // of blocks that are whole
  std::vector<Largest> largest;  // by row, of those that are not
  ir::TensorType type;
  int64_t elements = 0;  // that were placed, or that a largest was found of

  void Add(const TensorTile& tile);
  Tensor Take();
};

void Assembly::Add(const TensorTile& tile) {
  elements += Elements(tile.box.size);
  if (!tile.largest) {
    tensor.data.resize(static_cast<size_t>(type.bytes()));
    return Place(tile, tensor);
  }
  const ir::Dims rows(type.dims.begin(), std::prev(type.dims.end()));
  largest.resize(static_cast<size_t>(Elements(rows)));
  for (int64_t i = 0; i < Rows(tile); ++i) {
    Largest found;
    std::memcpy(&found, tile.bytes.data() + static_cast<size_t>(i) * sizeof found, sizeof found);
    int64_t flat = 0;
    int64_t stride = 1;
    int64_t rest = i;
    for (size_t d = rows.size(); d-- > 0;) {
      flat += (tile.box.offset[d] + rest % tile.box.size[d]) * stride;
      rest /= tile.box.size[d];
      stride *= rows[d];
    }
    Largest& so_far = largest[static_cast<size_t>(flat)];
    if (std::isnan(so_far.value)) continue;
    const bool first = found.value == so_far.value && found.place < so_far.place;
    if (so_far.place < 0 || !(found.value <= so_far.value) || first) so_far = found;
  }
}

Tensor Assembly::Take() {
  if (largest.empty()) return std::move(tensor);
  std::vector<int32_t> places;
  for (const Largest& row : largest) {
    places.push_back(std::isfinite(row.value) ? static_cast<int32_t>(row.place) : -1);
  }
  return Tensor::Of<int32_t>({type.dims.begin(), std::prev(type.dims.end())}, places);
}

}  // namespace

Result<std::map<std::string, Tensor>> AssembleTiles(const std::vector<TensorTile>& tiles) {
  std::map<std::string, Assembly> parts;
  for (const TensorTile& tile : tiles) {
    const auto [it, fresh] = parts.try_emplace(tile.name);
    Assembly& part = it->second;
    if (fresh) {
      part.type = tile.type;
      part.tensor.type = tile.type;
    }
    if (part.type != tile.type) {
      return Fail(DataLoss(fmt::format("blocks of \"{}\" are of {} and of {}", tile.name,
                                       part.type.ToString(), tile.type.ToString())));
    }
    if (!fresh && tile.largest == part.largest.empty()) {
      return Fail(DataLoss(
          fmt::format("blocks of \"{}\" come whole and as their largest values", tile.name)));
    }
    MW_TRY(CheckTile(tile));
    part.Add(tile);
  }
  std::map<std::string, Tensor> tensors;
  for (auto& [name, part] : parts) {
    // Blocks that fit and have as many elements as the tensor cover it, unless two overlap: each
    // block is sent by one device only.
    if (part.elements != Elements(part.type.dims)) {
      return Fail(
          DataLoss(fmt::format("the blocks of \"{}\" have {} elements, {} has {}", name,
                               part.elements, part.type.ToString(), Elements(part.type.dims))));
    }
    tensors.emplace(name, part.Take());
  }
  return tensors;
}

}  // namespace meshwright::client
