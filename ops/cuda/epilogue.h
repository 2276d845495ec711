// What of a fused body a matrix product finishes by itself.
//
// Thread rule: pure functions.
#pragma once

#include <optional>

#include "ops/cuda/blas.h"
#include "ops/kernel_spec.h"

namespace meshwright::ops::cuda {

// A body that is a product and nothing but this epilogue. Numbers: operands and results of the
// node; -1: not of this epilogue.
struct EpilogueForm {
  BlasEpilogue epilogue = BlasEpilogue::kNone;
  int result = 0;          // c
  int bias = -1;           // operand
  int aux_operand = -1;    // read by gelu_grad
  int aux_result = -1;     // written by gelu
  int bias_gradient = -1;  // result

  // The node's tensors where the product wants them.
  void SetMemory(Inputs inputs, Outputs outputs, BlasMemory& memory) const;
};

// `columns` of the product, which is dense and row-major. Nothing when the body does more, or
// another thing, or has values of several types.
std::optional<EpilogueForm> FindEpilogue(const ir::Graph& body, int producer, int64_t columns);

}  // namespace meshwright::ops::cuda
