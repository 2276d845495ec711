// The maximum for softmax rows.
#pragma once

#include <cmath>

namespace meshwright::ops::reference {

// NaN wins, so that a diverged model is seen.
inline double Larger(double x, double y) { return std::isnan(x) || x > y ? x : y; }

}  // namespace meshwright::ops::reference
