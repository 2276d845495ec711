// Norms and their gradients in ops that a sum along the width cuts apart: where each device has a
// part of the width, that sum is one over devices.
//
// Thread rule: pure functions on the builder.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ir/builder.h"
#include "ir/op.h"

namespace meshwright::ir {

// The last dim of a norm, of which operands may have a part.
struct NormWidth {
  int64_t elements = 0;  // of all parts
  // The sum of what every part has of a value, [...] -> [...]; null: there is one part.
  std::function<ValueId(Builder&, ValueId)> sum_parts = {};
};

// Of layer_norm and rms_norm: y, as wide as x, and the statistics. Computed in the statistics'
// type; y is of y_dtype. The variance is that of x less its mean, in a second sum: a difference of
// large sums would lose digits. Errors stick to the builder.
std::vector<ValueId> NormInParts(Builder& builder, Op op, const Attrs& attrs, DType y_dtype,
                                 const std::vector<ValueId>& operands, const NormWidth& width);

// Of layer_norm_grad and rms_norm_grad: dx, dw and, of the first, db. Sums over rows, which are
// those of dw and db, are of the device's rows.
std::vector<ValueId> NormGradInParts(Builder& builder, Op op, const std::vector<ValueId>& operands,
                                     const NormWidth& width);

}  // namespace meshwright::ir
