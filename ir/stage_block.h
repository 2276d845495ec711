// Where a tensor lies in one of which several pipeline stages hold a block each.
//
// A node of a stage that computes with a block (rows of a table, columns of logits) says so by the
// attribute "block": {dim, first, whole}. The block may be split further over a mesh ("Sharded
// dims" in ir/op.h are then those of the block); splits of a block divide it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/attrs.h"

namespace meshwright::ir {

struct StageBlock {
  int dim = 0;
  int64_t first = 0;  // of the block along `dim`
  int64_t whole = 0;  // size of `dim` of all blocks together

  // Nothing: the tensor is all there is.
  static std::optional<StageBlock> FromAttrs(const Attrs& attrs) {
    const std::vector<int64_t> numbers = attrs.Ints("block");
    if (numbers.size() != 3 || numbers[0] < 0) return std::nullopt;
    return StageBlock{static_cast<int>(numbers[0]), numbers[1], numbers[2]};
  }
  void ToAttrs(Attrs& attrs) const {
    attrs.Set("block", std::vector<int64_t>{int64_t{dim}, first, whole});
  }
};

}  // namespace meshwright::ir
