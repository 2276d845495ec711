// Where libraries want their workspaces: at multiples of 256 bytes ("cublasLtMatmul() ... must be
// 256B aligned", cuBLAS documentation). Scratch starts at multiples of device::kAlignmentBytes, so
// that a plan asks for a little more and moves up.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>

namespace meshwright::ops::cuda {

inline constexpr int64_t kWorkspaceAlignment = 256;

// What a plan asks for when its library needs `bytes`.
constexpr int64_t WorkspaceBytes(int64_t bytes) {
  return bytes == 0 ? 0 : bytes + kWorkspaceAlignment;
}

// The first place at or behind `scratch` that fits.
inline void* WorkspaceAt(void* scratch) {
  const auto at = reinterpret_cast<uintptr_t>(scratch) + kWorkspaceAlignment - 1;
  return reinterpret_cast<void*>(at / kWorkspaceAlignment * kWorkspaceAlignment);
}

}  // namespace meshwright::ops::cuda
