// The middle of some measurements: what one bad moment does not change.
//
// Thread rule: a pure function.
#pragma once

#include <vector>

namespace meshwright {

// The mean of the middle two of an even number; 0 of none.
double Median(std::vector<double> values);

}  // namespace meshwright
