// A tensor spread over a mesh, device by device, and the collectives done naively on it: the oracle
// of the reshard tests. Shares nothing with the code under test but the types; blocks and groups
// are derived here from coordinates.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "mesh/reshard.h"
#include "mesh/sharding.h"

namespace meshwright::mesh {

struct IntTensor {
  ir::Dims dims;
  std::vector<int64_t> data;  // row-major
  friend bool operator==(const IntTensor&, const IntTensor&) = default;
};

IntTensor RandomTensor(const ir::Dims& dims, std::mt19937_64& random);

// The part of `tensor` at [begin, begin + size).
IntTensor SubTensor(const IntTensor& tensor, const ir::Dims& begin, const ir::Dims& size);

// One tensor per mesh position.
using Shards = std::vector<IntTensor>;

// Shards of `global`; partial axes get random parts that combine to it.
Shards Scatter(const IntTensor& global, const Sharding& sharding, const Mesh& mesh,
               std::mt19937_64& random);

// What every device holds after `step`, done as its op says (ir/op.h).
Shards Execute(const Shards& before, const ReshardStep& step, const Mesh& mesh);

// Empty when the shards are `global` under `sharding`; else where they are not.
std::string Difference(const Shards& shards, const IntTensor& global, const Sharding& sharding,
                       const Mesh& mesh);

// Every sharding of a tensor of this rank in which each axis replicates, splits a dim (in every
// order) or, if asked, is partial.
std::vector<Sharding> AllShardings(int rank, const Mesh& mesh, bool with_partial);

}  // namespace meshwright::mesh
