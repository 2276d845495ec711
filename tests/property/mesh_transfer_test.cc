#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "mesh/reshard.h"
#include "tests/property/mesh_shards.h"

namespace meshwright::mesh {
namespace {

int64_t Product(const ir::Dims& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

Mesh RandomMesh(std::mt19937_64& random) {
  Mesh mesh;
  const size_t axes = random() % 3;
  for (size_t a = 0; a < axes; ++a) {
    mesh.axes.push_back(
        {std::string(1, static_cast<char>('a' + a)), static_cast<int64_t>(1 + random() % 4)});
  }
  return mesh;
}

Sharding RandomSharding(const ir::TensorType& type, const Mesh& mesh, std::mt19937_64& random) {
  std::vector<Sharding> valid;
  for (const Sharding& sharding : AllShardings(type.rank(), mesh, false)) {
    if (ValidateSharding(type, sharding, mesh).ok()) valid.push_back(sharding);
  }
  return valid[random() % valid.size()];
}

// Copies the tile's elements from the sender's block to the receiver's; -1 marks what has not come
// yet.
void Deliver(const Tile& tile, const Shards& source, Shards& destination) {
  const IntTensor& from = source[static_cast<size_t>(tile.from_position)];
  IntTensor& to = destination[static_cast<size_t>(tile.to_position)];
  RC_ASSERT(tile.source_local.size == tile.global.size);
  RC_ASSERT(tile.destination_local.size == tile.global.size);
  const IntTensor moved = SubTensor(from, tile.source_local.offset, tile.source_local.size);
  for (int64_t n = 0; n < Product(tile.global.size); ++n) {
    int64_t rest = n, offset = 0;
    ir::Dims index(tile.global.size.size());
    for (size_t d = index.size(); d-- > 0;) {
      index[d] = tile.destination_local.offset[d] + rest % tile.global.size[d];
      rest /= tile.global.size[d];
      RC_ASSERT(index[d] < to.dims[d]);
    }
    for (size_t d = 0; d < index.size(); ++d) offset = offset * to.dims[d] + index[d];
    int64_t& element = to.data[static_cast<size_t>(offset)];
    RC_ASSERT(element == -1);  // exactly once
    element = moved.data[static_cast<size_t>(n)];
  }
}

// Devices with the same block may differ by at most the largest tile any of them sends.
void CheckBalance(const std::vector<Tile>& tiles, const Shards& source) {
  std::map<std::vector<int64_t>, std::map<int64_t, int64_t>> load;  // block contents -> holder
  std::map<std::vector<int64_t>, int64_t> largest;
  for (size_t p = 0; p < source.size(); ++p) load[source[p].data][static_cast<int64_t>(p)] = 0;
  for (const Tile& tile : tiles) {
    const auto& block = source[static_cast<size_t>(tile.from_position)].data;
    load[block][tile.from_position] += Product(tile.global.size);
    largest[block] = std::max(largest[block], Product(tile.global.size));
  }
  for (const auto& [block, holders] : load) {
    const auto [least, most] =
        std::minmax_element(holders.begin(), holders.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; });
    RC_ASSERT(most->second - least->second <= largest[block]);
  }
}

TEST(TransferProperty, EachDestinationElementComesExactlyOnceFromABalancedHolder) {
  EXPECT_TRUE(rc::check("tiles fill the destination", [](uint64_t seed) {
    std::mt19937_64 random(seed);
    ir::TensorType type{ir::DType::kI64, {}};
    const size_t rank = random() % 4;
    for (size_t d = 0; d < rank; ++d) type.dims.push_back(random() % 2 == 0 ? 12 : 6);
    const Mesh from_mesh = RandomMesh(random), to_mesh = RandomMesh(random);
    const Sharding from = RandomSharding(type, from_mesh, random);
    const Sharding to = RandomSharding(type, to_mesh, random);
    const auto tiles = PlanTransfer(type, from, from_mesh, to, to_mesh);
    RC_ASSERT(tiles.has_value());
    RC_ASSERT(*tiles == *PlanTransfer(type, from, from_mesh, to, to_mesh));

    IntTensor global{type.dims, {}};  // distinct elements: equal blocks are the same block
    for (int64_t i = 0; i < type.elements(); ++i) global.data.push_back(i);
    const Shards source = Scatter(global, from, from_mesh, random);
    Shards destination = Scatter(global, to, to_mesh, random);
    int64_t lower_bound = 0, moved = 0;
    for (IntTensor& shard : destination) {
      lower_bound += static_cast<int64_t>(shard.data.size());
      std::fill(shard.data.begin(), shard.data.end(), -1);
    }
    for (const Tile& tile : *tiles) {
      moved += Product(tile.global.size);
      Deliver(tile, source, destination);
    }
    RC_ASSERT(moved == lower_bound);
    RC_ASSERT(Difference(destination, global, to, to_mesh) == "");
    CheckBalance(*tiles, source);
  }));
}

}  // namespace
}  // namespace meshwright::mesh
