// Sdpa: attention by a library, where the library computes what our op means.
//
// The op is that of ops/attention_shape.h with scale 1/sqrt(e): no segments, no dropout (a
// library's random numbers are not ours). The plugin implements it with cuDNN (sdpa.cu). What a
// library does not take, our own kernels do. A shape may be a part of the op: some of its batch
// rows and heads.
//
// Thread rule: thread-safe; on the device that the calling thread uses, and a plan is for that
// device. Ownership: plans live as long as the Sdpa.
#pragma once

#include <compare>
#include <cstdint>

#include "base/result.h"
#include "device/cuda/driver.h"
#include "ir/dtype.h"

namespace meshwright::ops::cuda {

// Elements from one batch row, position and head to the next; e is contiguous.
struct SdpaStrides {
  int64_t batch = 0;
  int64_t position = 0;
  int64_t head = 0;
  friend auto operator<=>(const SdpaStrides&, const SdpaStrides&) = default;
};

struct SdpaShape {
  bool gradient = false;
  int64_t batch = 0;
  int64_t sequence = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_size = 0;
  bool causal = true;
  ir::DType dtype = ir::DType::kBF16;
  SdpaStrides q;          // and of dq
  SdpaStrides kv;         // of k, v, dk and dv
  SdpaStrides o;          // and of do
  int64_t lse_batch = 0;  // from one batch row of lse to the next
  friend auto operator<=>(const SdpaShape&, const SdpaShape&) = default;
};

// The memory that a gradient takes whose sums have a fixed order: a 16-bit number for each score.
inline int64_t ScoreBytes(const SdpaShape& shape) {
  return 2 * shape.batch * shape.heads * shape.sequence * shape.sequence;
}

// What every library takes: 16-bit types and heads of whole 16 bytes up to 256 elements.
inline bool MayRunSdpa(const SdpaShape& shape) {
  const bool half = shape.dtype == ir::DType::kBF16 || shape.dtype == ir::DType::kF16;
  const int64_t largest = shape.gradient ? 128 : 256;
  return half && shape.head_size % 8 == 0 && shape.head_size <= largest && shape.sequence > 1;
}

class SdpaPlan {
 public:
  virtual ~SdpaPlan() = default;
  // Of scratch, wherever that starts (ops/cuda/workspace.h).
  virtual int64_t workspace_bytes() const = 0;
};

// lse is f32 [batch, heads, sequence], dense within a batch row. Forward writes o and lse; a
// gradient reads them.
struct SdpaMemory {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* o = nullptr;
  float* lse = nullptr;
  const void* d_o = nullptr;
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  void* workspace = nullptr;
};

class Sdpa {
 public:
  virtual ~Sdpa() = default;

  // Equal shapes share a plan. Errors: kUnimplemented: the library does not take the shape.
  virtual Result<const SdpaPlan*> Plan(const SdpaShape& shape) = 0;
  // Errors: kInternal with the name of the library's error.
  virtual Status Run(const SdpaPlan& plan, const SdpaMemory& memory,
                     device::cuda::StreamHandle stream) = 0;
};

}  // namespace meshwright::ops::cuda
