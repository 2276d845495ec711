// Products of experts against one product of as many FLOPs.
//
// Thread rule: one thread, on which everything runs.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "ir/dtype.h"

namespace meshwright::bench {

struct GroupedCase {
  int64_t experts = 8;
  int64_t rows = 64;  // of each expert
  int64_t d = 256;
  int64_t f = 512;
  bool bf16 = false;
};

// Prints a line of JSON: seconds of x w, dy w^T and x^T dy of experts with `rows` rows each
// ("grouped"), of one product of oneDNN's with all rows ("one"), and of the experts' weights being
// read twice and their gradients written ("memory"); "ratio": all of `one` over all of `grouped`;
// "limit_ratio": the longer one of `one` and `memory` each in its place. Errors: those of the
// kernels.
Status PrintGroupedCase(const GroupedCase& grouped);

}  // namespace meshwright::bench
