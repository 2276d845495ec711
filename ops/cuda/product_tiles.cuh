// Tiles of products that our own kernels compute. For .cu files only.
//
// A block of kProductThreads threads has a tile of kTile x kTile results, a thread kEach x kEach of
// them. The sum of a result runs in the order of k, kDepth steps at a time, whatever else is in the
// tile: a factor that is not there counts as zero.
#pragma once

#include "ops/cuda/language.cuh"

namespace meshwright::ops::cuda {

constexpr int kProductThreads = 256;
constexpr int kTile = 64;   // rows and columns of a block's result
constexpr int kDepth = 16;  // of the sums at a time
constexpr int kEach = 4;    // rows and columns of a thread's result
constexpr int kAcross = kTile / kEach;
static_assert(kAcross * kAcross == kProductThreads, "a thread has kEach x kEach results");

inline int64_t Tiles(int64_t size) { return (size + kTile - 1) / kTile; }

// Both factors of kDepth steps of the sums.
struct Factors {
  float a[kDepth][kTile];
  float b[kDepth][kTile];
};

__device__ inline void AddProducts(const Factors& factors, float (&sums)[kEach][kEach]) {
  const int row = static_cast<int>(threadIdx.x) / kAcross * kEach;
  const int column = static_cast<int>(threadIdx.x) % kAcross * kEach;
#pragma unroll
  for (int k = 0; k < kDepth; ++k) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        sums[i][j] += factors.a[k][row + i] * factors.b[k][column + j];
      }
    }
  }
}

}  // namespace meshwright::ops::cuda
