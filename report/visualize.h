// Pictures of a sharding: which device holds which part of a tensor. 1-D and 2-D views (higher
// ranks: the two dims that are split, or the last two); replicas share a cell, joined by commas.
#pragma once

#include <string>

#include "base/result.h"
#include "mesh/sharding.h"

namespace meshwright::report {

struct GridOptions {
  int max_width = 80;  // columns
  bool color = false;  // ANSI background per device
};

// Box-drawing grid for the terminal. Errors: kInvalidArgument as ValidateSharding.
Result<std::string> RenderGrid(const ir::TensorType& type, const mesh::Sharding& sharding,
                               const mesh::Mesh& mesh, const GridOptions& options = {});
// The same grid as elements of an SVG document, with its size in pixels, to place in a picture.
struct SvgGrid {
  int width = 0;
  int height = 0;
  std::string elements;  // in a monospace font of kSvgFontSize
};
inline constexpr int kSvgFontSize = 13;
Result<SvgGrid> DrawSvg(const ir::TensorType& type, const mesh::Sharding& sharding,
                        const mesh::Mesh& mesh);

// A standalone SVG document of it.
Result<std::string> RenderSvg(const ir::TensorType& type, const mesh::Sharding& sharding,
                              const mesh::Mesh& mesh);

}  // namespace meshwright::report
