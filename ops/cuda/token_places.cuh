// Positions of tokens by their places in a block. For .cu files only.
//
// Thread rule: as kernels.
#pragma once

#include "ops/cuda/kernel_args.h"
#include "ops/cuda/language.cuh"

namespace meshwright::ops::cuda {

__device__ inline int64_t PositionOf(const TokenPlaces& places, int64_t place) {
  const int64_t at = places.start + place;
  if (places.chunk == 0) return at;
  const int64_t block = at / (2 * places.chunk);
  const int64_t within = at - block * 2 * places.chunk;
  if (within < places.chunk) return block * places.chunk + within;
  return (2 * places.parts - 1 - block) * places.chunk + within - places.chunk;
}

// No position of `count` neighbouring places is below the least, or above the largest. Over at most
// two chunks these are met: each chunk's positions ascend.
__device__ inline int64_t LeastPosition(const TokenPlaces& places, int64_t first, int64_t count) {
  const int64_t own = PositionOf(places, first);
  if (places.chunk == 0) return own;
  if (count > places.chunk) return 0;
  const int64_t last = PositionOf(places, first + count - 1);
  const int64_t chunk = last / places.chunk * places.chunk;  // where the last one's chunk begins
  return own / places.chunk * places.chunk == chunk || own < chunk ? own : chunk;
}
__device__ inline int64_t LargestPosition(const TokenPlaces& places, int64_t first, int64_t count) {
  const int64_t last = PositionOf(places, first + count - 1);
  if (places.chunk == 0) return last;
  if (count > places.chunk) return 2 * places.chunk * places.parts;
  const int64_t own = PositionOf(places, first);
  const int64_t end = (own / places.chunk + 1) * places.chunk - 1;  // of the first one's chunk
  return own / places.chunk == last / places.chunk || last > end ? last : end;
}

}  // namespace meshwright::ops::cuda
