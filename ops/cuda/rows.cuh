// Rows: how blocks take the rows of a matrix, one unit of elements after the other. For .cu files
// only.
//
// A row belongs to `lanes` threads, whole warps: one warp where it is short, and then several rows
// share a block (blockDim.y), else the block. Rows that fit stay in registers, so that the second
// look at them costs no memory.
#pragma once

#include "ops/cuda/language.cuh"

namespace meshwright::ops::cuda {

constexpr int64_t kThreadsOfShortRows = 256;
constexpr int64_t kMaxBlockThreads = 1024;
constexpr int64_t kUnitsOfALoop = 8;

// Threads for rows of `units`, of which a thread keeps at most `kept`. Zero: too long to be kept.
inline int64_t RowLanes(int64_t units, int64_t kept) {
  const int64_t warps = (units + kWarp * kept - 1) / (kWarp * kept);
  return warps * kWarp <= kMaxBlockThreads ? warps * kWarp : 0;
}
// Threads for rows that are not kept.
inline int64_t LoopLanes(int64_t units) {
  const int64_t lanes = RowLanes(units, kUnitsOfALoop);
  return lanes == 0 || lanes > kThreadsOfShortRows ? kThreadsOfShortRows : lanes;
}
inline dim3 RowBlock(int64_t lanes) {
  const int64_t rows = lanes == kWarp ? kThreadsOfShortRows / kWarp : 1;
  return dim3{static_cast<unsigned>(lanes), static_cast<unsigned>(rows), 1};
}

// The sum over the threads of a row; BlockSum of several rows.
__device__ inline float RowSum(float value, float* part) { return BlockSum(value, part); }

// Units of a row that this thread has: at most kKept, or any number where kKept is 0.
template <typename T, int N, int kKept>
class RowUnits {
 public:
  __device__ RowUnits(const T* row, int64_t units) : row_(row), units_(units) {
    if constexpr (kKept > 0) {
#pragma unroll
      for (int k = 0; k < kKept; ++k) {
        const int64_t unit = threadIdx.x + static_cast<int64_t>(k) * blockDim.x;
        if (unit < units_) LoadUnit<T, N>(row_ + unit * N, kept_[k]);
      }
    }
  }

  // Calls body(k, first element, values).
  template <typename Body>
  __device__ void ForEach(const Body& body) {
    if constexpr (kKept > 0) {
#pragma unroll
      for (int k = 0; k < kKept; ++k) {
        const int64_t unit = threadIdx.x + static_cast<int64_t>(k) * blockDim.x;
        if (unit < units_) body(k, unit * N, kept_[k]);
      }
    } else {
      for (int64_t unit = threadIdx.x; unit < units_; unit += blockDim.x) {
        LoadUnit<T, N>(row_ + unit * N, kept_[0]);
        body(0, unit * N, kept_[0]);
      }
    }
  }

 private:
  const T* row_;
  const int64_t units_;
  float kept_[kKept > 0 ? kKept : 1][N];
};

}  // namespace meshwright::ops::cuda
