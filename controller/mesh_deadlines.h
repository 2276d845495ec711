// The phases of a mesh that wait for every member once, and how long.
//
// A launch has no deadline of its own: its collectives have. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "controller/mesh_state.h"

namespace meshwright::controller {

// The error of the first member that is late, or nothing.
std::optional<proto::RuntimeError> FindLate(const MeshState& mesh, int64_t now_ms);

}  // namespace meshwright::controller
