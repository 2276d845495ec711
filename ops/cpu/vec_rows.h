// Vector loops over one row of f32 values: reductions, softmax pieces, norms, optimizer updates.
// Same rules as vec_elementwise.h. Reductions add in an order that depends on the instruction set
// and the length only.
#pragma once

#include <cstdint>

#include "ops/optimizer_math.h"

namespace meshwright::ops::cpu {

float VecMax(const float* x, int64_t count);  // -inf for an empty row
float VecSum(const float* x, int64_t count);
float VecDot(const float* x, const float* y, int64_t count);
// out = exp(x - shift), unless `out` is null; returns their sum.
float VecExpSum(const float* x, float shift, float* out, int64_t count);
// out = factor * exp(x - shift)
void VecExpScaled(const float* x, float shift, float factor, float* out, int64_t count);

struct NormRow {
  float mean = 0;
  float rstd = 0;
};
// y = (x - mean) * rstd * w + b. Without b (null): no mean, rms norm.
NormRow VecNorm(const float* x, const float* w, const float* b, float eps, float* y, int64_t count);

struct NormGradRow {
  const float* x;
  const float* w;
  const float* dy;
  float mean;
  float rstd;
  bool has_mean;
};
// Writes dx; adds the row's share of dw, and of db when has_mean.
void VecNormGrad(const NormGradRow& row, float* dx, float* dw, float* db, int64_t count);

struct AdamWRow {
  const float* p;
  const float* g;
  const float* m;
  const float* v;
  float* p_out;
  float* m_out;
  float* v_out;
};
void VecAdamW(const AdamWRow& row, const AdamWStep& step, int64_t count);

struct SgdRow {
  const float* p;
  const float* g;
  const float* m;
  float* p_out;
  float* m_out;
};
struct SgdStep {
  float multiplier;
  float lr;
  float momentum;
  float decay;
};
void VecSgd(const SgdRow& row, const SgdStep& step, int64_t count);

}  // namespace meshwright::ops::cpu
