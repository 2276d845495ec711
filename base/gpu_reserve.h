// How much of a GPU's memory plans leave to what they do not count: the context of the driver and
// the code of kernels (about half a GiB), rings of NCCL's channels (some ten MiB for each pair of a
// communicator, of which a mesh has several), handles and workspaces of cuBLAS and cuDNN, the
// scratch of a gradient of attention (at most 1 GiB), and what the card itself keeps of the size
// that its name says (0.7 GiB of 80). Together 2 to 4 GiB, whatever the card; small cards have
// small rings, too.
//
// Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

namespace meshwright {

inline constexpr int64_t kGpuReserveBytes = int64_t{4} << 30;
inline constexpr int64_t kSmallGpuReserveParts = 8;  // of a small card one part in so many

// Of a GPU with so much memory.
constexpr int64_t GpuReserveBytes(int64_t memory_bytes) {
  return std::min(kGpuReserveBytes, memory_bytes / kSmallGpuReserveParts);
}

}  // namespace meshwright
