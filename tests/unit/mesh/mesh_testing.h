// Shorthands of the mesh tests: meshes with devices 0, 1, 2, ... and shardings from their text.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mesh/sharding.h"

namespace meshwright::mesh {

inline Mesh MakeMesh(std::vector<ir::MeshAxis> axes, int32_t first_device = 0) {
  Mesh mesh;
  mesh.axes = std::move(axes);
  int64_t count = 1;
  for (const ir::MeshAxis& axis : mesh.axes) count *= axis.size;
  for (int32_t i = 0; i < count; ++i) mesh.devices.push_back(DeviceIndex(first_device + i));
  return mesh;
}

inline TypedSharding Parse(std::string_view text) {
  Result<TypedSharding> parsed = ParseSharding(text);
  if (!parsed.has_value()) {
    ADD_FAILURE() << parsed.error();
    return {};
  }
  return *parsed;
}

}  // namespace meshwright::mesh
