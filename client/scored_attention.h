// Attention as products around a softmax, where it is no one op: with a bias, with capped
// scores, or between two lengths.
//
// Thread rule: one thread.
#pragma once

#include "base/ids.h"
#include "client/layers.h"

namespace meshwright::client {

// As Builder::Attention says of it.
ValueId ScoredAttention(Builder& builder, ValueId q, ValueId k, ValueId v,
                        const AttentionOptions& options);

}  // namespace meshwright::client
