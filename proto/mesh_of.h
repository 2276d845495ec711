// Which mesh a message between controller and worker is about.
//
// Thread rule: pure function.
#pragma once

#include <optional>
#include <variant>

#include "base/ids.h"

namespace meshwright::proto {

// The generation that an UpBody or a DownBody names; none: it is about no mesh.
template <typename Body>
std::optional<MeshGeneration> MeshOf(const Body& body) {
  return std::visit(
      [](const auto& message) -> std::optional<MeshGeneration> {
        if constexpr (requires { message.mesh_gen; }) {
          return message.mesh_gen;
        } else {
          return std::nullopt;
        }
      },
      body);
}

}  // namespace meshwright::proto
