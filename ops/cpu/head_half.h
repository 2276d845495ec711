// The products of a head in bf16, results in f32.
//
// The gradient of a row of a tile lies at the begin of that row, as bf16: rows of it are twice as
// far apart as they are long. Thread rule: immutable.
#pragma once

#include <memory>

#include "ops/cpu/head_products.h"

namespace meshwright::ops::cpu {

// Null when this processor has no bf16 products.
std::unique_ptr<const HeadProducts> MakeHalfHeadProducts(const HeadSizes& sizes, bool gradient);

}  // namespace meshwright::ops::cpu
