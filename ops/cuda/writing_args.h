// Arguments of our kernels of programs that keep texts in pages; see kernel_args.h.
//
// Thread rule: plain values.
#pragma once

#include "ops/cuda/kernel_args.h"

namespace meshwright::ops::cuda {

// c = a b for each step of `outer`, summed over those of `depth`, or plus c's old content.
struct AloneProductArgs {
  struct Loop {
    int64_t size = 1;
    int64_t a = 0;  // strides in elements
    int64_t b = 0;
    int64_t c = 0;
  };
  static constexpr int kMostLoops = 4;

  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  Loop m;
  Loop n;
  Loop k;
  Loop outer[kMostLoops];  // those that are not there have one step
  Loop depth[kMostLoops];
  bool accumulate = false;
  FloatType a_type = FloatType::kF32;
  FloatType b_type = FloatType::kF32;
  FloatType c_type = FloatType::kF32;
};

// As ops/paged_shape.h has it. One type but for lse and the indices.
struct PagedAttentionArgs {
  const void* q = nullptr;     // [b, n, h, e]
  const void* k = nullptr;     // [b, keys, g, e]
  const void* v = nullptr;     // the same
  const void* bias = nullptr;  // [h, distances]; null: none
  const int32_t* table = nullptr;
  const int32_t* row = nullptr;           // [b, n]
  const int32_t* position = nullptr;      // the same
  const int32_t* key_row = nullptr;       // [b, keys]
  const int32_t* key_position = nullptr;  // the same
  void* pages = nullptr;                  // [b, pages, 2, g, page_tokens, e]
  void* o = nullptr;                      // as q
  float* lse = nullptr;                   // [b, h, n]
  int64_t b = 0;
  int64_t n = 0;
  int64_t keys = 0;
  int64_t h = 0;
  int64_t g = 0;
  int64_t e = 0;
  int64_t page_count = 0;
  int64_t page_tokens = 0;
  int64_t texts = 0;
  int64_t text_pages = 0;
  int64_t window = 0;  // 0: none
  int64_t distances = 0;
  float scale = 1;
  float cap = 0;  // 0: none
  FaultArgs fault;
  FloatType type = FloatType::kF32;
};

}  // namespace meshwright::ops::cuda
