// Tensors on the wire: whole ones, and the blocks that devices hold.
//
// Thread rule: values.
#pragma once

#include <string>

#include "base/shared_bytes.h"
#include "ir/graph.h"
#include "ir/program.h"
#include "proto/fetch.h"

namespace meshwright::proto {

// A whole tensor, in row-major order.
struct NamedTensor {
  std::string name;
  ir::TensorType type;
  SharedBytes bytes;
  friend bool operator==(const NamedTensor&, const NamedTensor&) = default;
};

// place: in the whole row; -1: one of the values is no number, and `value` is NaN.
struct Largest {
  double value = 0;
  int64_t place = -1;
};

inline bool HasLargest(const ir::TensorType& type) {
  return ir::IsFloating(type.dtype) && type.rank() > 0;
}

// A block of a tensor that a program gives out, or of a tensor of the state, in row-major order.
struct TensorTile {
  std::string name;
  ir::TensorType type;  // of the whole tensor
  ir::Box box;
  SharedBytes bytes;
  bool largest = false;  // the bytes are a Largest for each row of the block
  friend bool operator==(const TensorTile&, const TensorTile&) = default;
};

}  // namespace meshwright::proto
