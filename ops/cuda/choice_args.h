// Arguments of our kernels of choice and of softmax; see kernel_args.h.
//
// Thread rule: plain values.
#pragma once

#include "ops/cuda/kernel_args.h"

namespace meshwright::ops::cuda {

struct SoftmaxArgs {
  const void* x = nullptr;  // [rows, width]
  void* y = nullptr;
  int64_t rows = 0;
  int64_t width = 0;
  bool log = false;
  FloatType type = FloatType::kF32;
};

// A tensor around one dim: [outer, size, inner]. Ids have the same outer and inner.
struct AlongArgs {
  int64_t outer = 1;
  int64_t inner = 1;
  int64_t size = 1;  // of x, or of what is added to
  int64_t ids = 1;   // the same of ids
};
struct GatherArgs {
  const void* x = nullptr;
  const int32_t* ids = nullptr;
  void* to = nullptr;
  AlongArgs along;
  int64_t element_bytes = 0;  // 1, 2, 4, 8
  FaultArgs fault;
};
struct ScatterAddArgs {
  const int32_t* ids = nullptr;
  const void* y = nullptr;
  void* to = nullptr;
  AlongArgs along;
  FaultArgs fault;
  FloatType type = FloatType::kF32;
};
struct OneHotArgs {
  const int32_t* ids = nullptr;
  void* to = nullptr;  // [count, size]
  int64_t count = 0;
  int64_t size = 0;
  int64_t ignored = INT64_MIN;
  FloatType type = FloatType::kF32;
};
struct TopKArgs {
  const void* x = nullptr;  // [rows, width]
  void* values = nullptr;   // [rows, k]
  int32_t* ids = nullptr;
  int64_t rows = 0;
  int64_t width = 0;
  int64_t k = 0;
  FloatType type = FloatType::kF32;
};

}  // namespace meshwright::ops::cuda
