// The largest values of the rows of a block, instead of the block: what a client takes that wants
// no more of logits than the likeliest.
//
// Thread rule: pure functions.
#pragma once

#include "proto/tensors.h"

namespace meshwright::proto {

// A block of reals [.., n] becomes the largest of each of its rows, of equal ones the first, or
// what is no number; others stay as they are. REQUIRES that the bytes are those of its box.
TensorTile LargestOf(TensorTile block);

}  // namespace meshwright::proto
