// SdpaGraph: attention and its gradient as a graph of operations on whole tensors, in the form that
// cuDNN's fused kernels recognise. A plain value: the plugin hands it to cuDNN (sdpa.cu), which
// makes one kernel of it; tests compute it node by node.
//
//   s = q k^T scale, where the key is not behind the query, else hidden
//   m = max of s over keys; z = sum of exp(s - m); lse = m + log(z); o = exp(s - m) / z v
//
// and for the gradient, with p = exp(s - lse) and D = sum of do o over a head's elements:
//
//   dv = p^T do;  ds = p (do v^T - D) scale;  dk = ds^T q;  dq = ds k
//
// Thread rule: plain values.
// Source: cuDNN documentation, "Fused flash attention"; Dao et al., FlashAttention, NeurIPS'22.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ops/cuda/sdpa.h"

namespace meshwright::ops::cuda {

// Whose bytes a tensor is; kInner are values between operations, which need no memory in a kernel
// that fuses them. From kScale on: single f32 numbers, ValueOf().
enum class SdpaName : uint8_t {
  kInner,
  kQ,
  kK,
  kV,
  kO,
  kLse,
  kOGrad,
  kQGrad,
  kKGrad,
  kVGrad,
  kScale,
  kHidden,
  kOne,
};
inline constexpr int kSdpaNames = static_cast<int>(SdpaName::kOne) + 1;

// [batch, heads, rows, columns]; strides in elements.
struct GraphTensor {
  std::array<int64_t, 4> dims = {1, 1, 1, 1};
  std::array<int64_t, 4> strides = {1, 1, 1, 1};
  ir::DType type = ir::DType::kF32;
  SdpaName name = SdpaName::kInner;
};

enum class GraphOp : uint8_t {
  kMatmul,    // a b; where b has fewer heads, each serves as many of a as follow each other
  kMultiply,  // elementwise from here on; what has size 1 in a dim is repeated along it
  kAdd,
  kSubtract,
  kDivide,
  kExp,
  kLog,
  kNotLess,      // a >= b
  kSelect,       // c ? a : b
  kRowIndex,     // of an element of a tensor like a
  kColumnIndex,  //
  kMax,          // over the dims that the result has fewer of: columns, or heads that follow
  kSum,          // each other
  kReshape,      // the same elements, rows and columns swapped
};

struct GraphNode {
  GraphOp op = GraphOp::kMatmul;
  std::vector<int> operands;  // indices of tensors
  int result = 0;
};

struct SdpaGraph {
  std::vector<GraphTensor> tensors;
  std::vector<GraphNode> nodes;  // in an order in which they can be computed
};

// REQUIRES MayRunSdpa(shape).
SdpaGraph MakeSdpaGraph(const SdpaShape& shape);

// The number behind kScale, kHidden or kOne.
float ValueOf(SdpaName name, const SdpaShape& shape);
// The address behind another name.
void* PlaceOf(SdpaName name, const SdpaMemory& memory);

}  // namespace meshwright::ops::cuda
