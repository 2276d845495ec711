// Vector loops over flat f32 arrays, compiled for several instruction sets and chosen at run time.
//
// Every element is computed alone and the tail by the same instructions, so splitting a range never
// changes a bit. out may be equal to an operand, not otherwise overlap it.
#pragma once

#include <cstdint>

namespace meshwright::ops::cpu {

void VecAdd(const float* x, const float* y, float* out, int64_t count);
void VecMul(const float* x, const float* y, float* out, int64_t count);
void VecSub(const float* x, const float* y, float* out, int64_t count);
void VecScale(const float* x, float factor, float* out, int64_t count);
void VecGelu(const float* x, float* out, int64_t count);
void VecGeluGrad(const float* x, const float* dy, float* out, int64_t count);
void VecSilu(const float* x, float* out, int64_t count);
void VecSiluGrad(const float* x, const float* dy, float* out, int64_t count);

// out[i] = bits[i] >> 8 >= threshold ? x[i] * scale : 0.
void VecMask(const float* x, const uint32_t* bits, uint32_t threshold, float scale, float* out,
             int64_t count);
// bits[i] = word i%4 of Philox(key, (first + i) / 4, step): PhiloxBits for the key of a seed and
// stream.
void VecPhilox(uint64_t key, uint64_t step, uint64_t first, uint32_t* bits, int64_t count);

// out[i] = mean + deviation * the normal number first + i of PhiloxNormal, for the key of a seed
// and stream; within 1e-6 of the number in double.
void VecNormal(uint64_t key, uint64_t step, uint64_t first, float mean, float deviation, float* out,
               int64_t count);

// low' = low * cosine - high * sine; high' = high * cosine + low * sine.
void VecRotate(const float* x, const float* cosine, const float* sine, float* out, int64_t half);

}  // namespace meshwright::ops::cpu
