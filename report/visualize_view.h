// What both pictures of a sharding show: panels of cells, each cell a block of the tensor and the
// devices that hold it.
//
// Rows and columns are two dims: the tensor's own two (or one: a single row); of a higher rank the
// two that are split, filled up with the last ones. When more than two dims are split there is one
// panel per block of the others. Room-internal.
//
// Thread rule: values.
#pragma once

#include <string>
#include <vector>

#include "mesh/sharding.h"

namespace meshwright::report {

struct GridCell {
  std::vector<int32_t>
      devices;  // ascending mesh positions; the mesh's device indices where it has them
};

struct GridPanel {
  std::string title;                         // "dim 0 [0:4]"; empty when there is one panel
  std::vector<std::vector<GridCell>> cells;  // [row][column]
};

struct GridView {
  std::string title;                    // sharding and mesh
  std::vector<std::string> notes;       // what rows and columns are, what is partial
  std::vector<std::string> row_labels;  // "0:4"
  std::vector<std::string> column_labels;
  std::vector<GridPanel> panels;
};

// REQUIRES: ValidateSharding is OK.
GridView MakeGridView(const ir::TensorType& type, const mesh::Sharding& sharding,
                      const mesh::Mesh& mesh);

// "0,4,8" broken after commas into lines of at most `width` characters; a single entry may be
// longer.
std::vector<std::string> WrapDevices(const GridCell& cell, size_t width);

}  // namespace meshwright::report
