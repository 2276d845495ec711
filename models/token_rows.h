// Formulas on whole numbers of rows of tokens. Internal to models/.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>

#include "client/layers.h"

namespace meshwright::models {

// i32[]. A graph's constants are floats, which hold every token of a vocabulary.
inline ValueId Whole(client::Builder& builder, int64_t value) {
  return builder.Cast(builder.Fill({}, static_cast<double>(value)), ir::DType::kI32);
}

// Which tokens are not `token`: bool.
inline ValueId IsNot(client::Builder& builder, ValueId tokens, int64_t token) {
  return builder.NotEqual(tokens, Whole(builder, token));
}

}  // namespace meshwright::models
