// Pictures of a sharding: which device holds which part of a tensor. 1-D and 2-D views (higher
// ranks: the two dims that are split, or the last two); replicas share a cell, joined by commas.
#pragma once

#include <string>

#include "base/result.h"
#include "mesh/sharding.h"

namespace meshwright::mesh {

struct GridOptions {
  int max_width = 80;  // columns
  bool color = false;  // ANSI background per device
};

// Box-drawing grid for the terminal. Errors: kInvalidArgument as ValidateSharding.
Result<std::string> RenderGrid(const ir::TensorType& type, const Sharding& sharding,
                               const Mesh& mesh, const GridOptions& options = {});
// A standalone SVG document of the same grid.
Result<std::string> RenderSvg(const ir::TensorType& type, const Sharding& sharding,
                              const Mesh& mesh);

}  // namespace meshwright::mesh
