// Toolkit: what computes on a GPU, without CUDA's headers. The plugin makes one; tests make one
// that computes on the host.
//
// Thread rule: as each part says. Ownership: the parts outlive every kernel.
#pragma once

#include "ops/cuda/blas.h"
#include "ops/cuda/code_cache.h"
#include "ops/cuda/head_rows.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/sdpa.h"

namespace meshwright::ops::cuda {

// What the plugin exports, extern "C": Parts().
inline constexpr char kPartsSymbol[] = "meshwright_cuda_parts";

// What the plugin has of a toolkit. It lives as long as the plugin.
struct Parts {
  Kernels* kernels = nullptr;
  Blas* blas = nullptr;
  Compiler* compiler = nullptr;
  HeadRows* head_rows = nullptr;
  Sdpa* sdpa = nullptr;  // null: the plugin was built without
};

struct Toolkit {
  Kernels* kernels = nullptr;     // our own, always there
  Blas* blas = nullptr;           // matrix products, always there
  CodeCache* code = nullptr;      // generated kernels, always there
  HeadRows* head_rows = nullptr;  // always there
  Sdpa* sdpa = nullptr;           // null: our own attention does everything
  // f32 products in the GPU's 19-bit format: faster, 1e-3 instead of 1e-6 of the values.
  bool tf32 = false;
};

}  // namespace meshwright::ops::cuda
