// The loss of rows that are of one class each, and how many of them the model gets right.
//
// Thread rule: a pure function.
#pragma once

#include "client/layers.h"

namespace meshwright::models {

// logits [rows, classes], labels i32[rows]; labels of `ignored` do not count for the loss. The
// graph gives out "accuracy" beside it: the share of all rows whose highest logit is their class.
inline client::Loss ClassLoss(client::Builder& builder, ValueId logits, ValueId labels,
                              int64_t ignored) {
  const ValueId right = builder.Equal(builder.ArgMax(logits, -1), labels);
  builder.SetOutput("accuracy", builder.ReduceMean(builder.Cast(right, builder.dtype()), {0}),
                    ir::Reduction::kMean);
  return builder.CrossEntropy(logits, labels, ignored);
}

}  // namespace meshwright::models
