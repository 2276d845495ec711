// Tensors on the wire: whole ones, and the blocks that devices hold.
//
// Thread rule: values.
#pragma once

#include <string>

#include "ir/graph.h"
#include "ir/program.h"

namespace meshwright::proto {

// A whole tensor, in row-major order.
struct NamedTensor {
  std::string name;
  ir::TensorType type;
  std::string bytes;
  friend bool operator==(const NamedTensor&, const NamedTensor&) = default;
};

// A block of a tensor that a program gives out, or of a tensor of the state, in row-major order.
struct TensorTile {
  std::string name;
  ir::TensorType type;  // of the whole tensor
  ir::Box box;
  std::string bytes;
  friend bool operator==(const TensorTile&, const TensorTile&) = default;
};

}  // namespace meshwright::proto
