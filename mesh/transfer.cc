// Tiles between two meshes. Every destination device needs, of each source block that its own block
// touches, one copy of the overlap. Devices that hold the same source block are interchangeable,
// and a device holds one block, so blocks are balanced independently: tiles in order of size, each
// to the holder with the fewest bytes so far.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "mesh/reshard.h"

namespace meshwright::mesh {
namespace {

using Positions = std::vector<int64_t>;

int64_t PositionCount(const Mesh& mesh) {
  int64_t count = 1;
  for (const ir::MeshAxis& axis : mesh.axes) count *= axis.size;
  return count;
}

int64_t Elements(const ir::Box& box) {
  return std::accumulate(box.size.begin(), box.size.end(), int64_t{1}, std::multiplies<>());
}

ir::Box Overlap(const ir::Box& a, const ir::Box& b) {
  ir::Box out;
  for (size_t d = 0; d < a.offset.size(); ++d) {
    const int64_t begin = std::max(a.offset[d], b.offset[d]);
    const int64_t end = std::min(a.offset[d] + a.size[d], b.offset[d] + b.size[d]);
    MW_CHECK(begin < end) << "boxes do not meet along dim " << d;
    out.offset.push_back(begin);
    out.size.push_back(end - begin);
  }
  return out;
}

ir::Box Relative(ir::Box box, const ir::Box& origin) {
  for (size_t d = 0; d < box.offset.size(); ++d) box.offset[d] -= origin.offset[d];
  return box;
}

// The source's blocks as a grid, row-major over dims, and who holds each.
class SourceBlocks {
 public:
  SourceBlocks(const ir::Dims& global, const Sharding& sharding, const Mesh& mesh) {
    block_ = LocalDims(global, sharding, mesh);
    int64_t count = 1;
    for (size_t d = 0; d < global.size(); ++d) {
      grid_.push_back(mesh.SizeOf(sharding.dims[d]));
      count *= grid_.back();
    }
    holders_.resize(static_cast<size_t>(count));
    for (int64_t position = 0; position < PositionCount(mesh); ++position) {
      const ir::Box box = LocalBox(global, sharding, mesh, position);
      int64_t index = 0;
      for (size_t d = 0; d < global.size(); ++d) {
        index = index * grid_[d] + box.offset[d] / block_[d];
      }
      MW_CHECK(index >= 0 && index < count) << "block " << index << " of " << count;
      holders_[static_cast<size_t>(index)].push_back(position);
    }
  }

  size_t count() const { return holders_.size(); }
  const Positions& HoldersOf(size_t block) const { return holders_[block]; }

  ir::Box BoxOf(size_t block) const {
    ir::Box box;
    box.size = block_;
    box.offset.resize(block_.size());
    auto rest = static_cast<int64_t>(block);
    for (size_t d = block_.size(); d-- > 0;) {
      box.offset[d] = rest % grid_[d] * block_[d];
      rest /= grid_[d];
    }
    return box;
  }

  // Blocks that overlap `box`, ascending.
  std::vector<size_t> Touching(const ir::Box& box) const {
    std::vector<size_t> blocks{0};
    for (size_t d = 0; d < block_.size(); ++d) {
      const int64_t first = box.offset[d] / block_[d];
      const int64_t last = (box.offset[d] + box.size[d] - 1) / block_[d];
      std::vector<size_t> next;
      for (size_t prefix : blocks) {
        for (int64_t i = first; i <= last; ++i) {
          next.push_back(prefix * static_cast<size_t>(grid_[d]) + static_cast<size_t>(i));
        }
      }
      blocks = std::move(next);
    }
    return blocks;
  }

 private:
  ir::Dims block_;
  std::vector<int64_t> grid_;       // blocks per dim
  std::vector<Positions> holders_;  // per block, ascending
};

// Sets from_position of the tiles of one block. `tiles` index into `all`.
void ChooseSenders(std::vector<Tile>& all, std::vector<size_t> tiles, const Positions& holders) {
  MW_CHECK(!holders.empty()) << "nobody has a block that is sent";
  std::stable_sort(tiles.begin(), tiles.end(), [&](size_t a, size_t b) {
    return Elements(all[a].global) > Elements(all[b].global);
  });
  std::vector<int64_t> load_elements(holders.size());
  for (size_t tile : tiles) {
    const auto least = std::min_element(load_elements.begin(), load_elements.end());
    all[tile].from_position = holders[static_cast<size_t>(least - load_elements.begin())];
    *least += Elements(all[tile].global);
  }
}

Status RejectPartial(const ir::TensorType& type, const Sharding& sharding, const char* side) {
  if (sharding.partial.empty()) return OkStatus();
  return InvalidArgument(
      fmt::format("transfer between meshes: the {} {} is partial; reduce it inside its mesh first",
                  side, FormatSharding(type, sharding)));
}

}  // namespace

Result<std::vector<Tile>> PlanTransfer(const ir::TensorType& global_type, const Sharding& from,
                                       const Mesh& from_mesh, const Sharding& to,
                                       const Mesh& to_mesh) {
  MW_TRY(ValidateSharding(global_type, from, from_mesh));
  MW_TRY(ValidateSharding(global_type, to, to_mesh));
  MW_TRY(RejectPartial(global_type, from, "source"));
  MW_TRY(RejectPartial(global_type, to, "destination"));
  std::vector<Tile> tiles;
  if (global_type.elements() == 0) return tiles;
  const SourceBlocks source(global_type.dims, from, from_mesh);
  std::vector<std::vector<size_t>> tiles_of_block(source.count());
  for (int64_t position = 0; position < PositionCount(to_mesh); ++position) {
    const ir::Box wanted = LocalBox(global_type.dims, to, to_mesh, position);
    for (size_t block : source.Touching(wanted)) {
      const ir::Box held = source.BoxOf(block);
      tiles_of_block[block].push_back(tiles.size());
      Tile& tile = tiles.emplace_back();
      tile.to_position = position;
      tile.global = Overlap(held, wanted);
      tile.source_local = Relative(tile.global, held);
      tile.destination_local = Relative(tile.global, wanted);
    }
  }
  for (size_t block = 0; block < source.count(); ++block) {
    ChooseSenders(tiles, std::move(tiles_of_block[block]), source.HoldersOf(block));
  }
  return tiles;
}

}  // namespace meshwright::mesh
