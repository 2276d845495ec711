// Random tensors cut into random exact covers, with bytes that say where they belong.
#pragma once

#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/cover.h"
#include "checkpoint/shard.h"

namespace meshwright::checkpoint {

using Random = std::mt19937_64;

inline int64_t Between(Random& random, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
}

// Cuts a box at random until `pieces` are there or it cannot be cut.
inline std::vector<ir::Box> RandomCover(Random& random, const ir::Dims& dims, size_t pieces) {
  std::vector<ir::Box> boxes = {Explicit({}, dims)};
  for (size_t tries = 0; boxes.size() < pieces && tries < 4 * pieces; ++tries) {
    const size_t i = random() % boxes.size();
    if (dims.empty()) break;
    const size_t d = random() % dims.size();
    if (boxes[i].size[d] < 2) continue;
    const int64_t cut = Between(random, 1, boxes[i].size[d] - 1);
    ir::Box rest = boxes[i];
    rest.offset[d] += cut;
    rest.size[d] -= cut;
    boxes[i].size[d] = cut;
    boxes.push_back(std::move(rest));
  }
  return boxes;
}

inline ir::Dims RandomDims(Random& random) {
  ir::Dims dims(static_cast<size_t>(Between(random, 0, 4)));
  for (int64_t& dim : dims) dim = Between(random, 1, 12);
  return dims;
}

inline ir::Box RandomBox(Random& random, const ir::Dims& dims) {
  ir::Box box{dims, dims};
  for (size_t d = 0; d < dims.size(); ++d) {
    box.offset[d] = Between(random, 0, dims[d] - 1);
    box.size[d] = Between(random, 1, dims[d] - box.offset[d]);
  }
  return box;
}

// The elements of `box` of a tensor whose element i is `salt` + i, as i32.
inline std::vector<std::byte> ElementsOf(const ir::Dims& dims, const ir::Box& box, int32_t salt) {
  std::vector<int32_t> values;
  ir::Dims at = box.offset;
  const int64_t count = Volume(box);
  for (int64_t n = 0; n < count; ++n) {
    int64_t linear = 0;
    for (size_t d = 0; d < dims.size(); ++d) linear = linear * dims[d] + at[d];
    values.push_back(salt + static_cast<int32_t>(linear));
    for (size_t d = dims.size(); d-- > 0;) {
      if (++at[d] < box.offset[d] + box.size[d]) break;
      at[d] = box.offset[d];
    }
  }
  std::vector<std::byte> bytes(values.size() * sizeof(int32_t));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace meshwright::checkpoint
