// Values in ascending buckets: the thresholds that the stage search tries.
//
// Thread rule: immutable after construction.
#pragma once

#include <cstddef>
#include <vector>

namespace meshwright::search {

class CostBuckets {
 public:
  // Values of one bucket differ by at most `ratio` of the least; 0: a bucket per distinct value.
  // REQUIRES: values are finite and >= 0; at least one.
  CostBuckets(std::vector<double> values, double ratio);

  int count() const { return static_cast<int>(low_.size()); }
  double low(int bucket) const { return low_[static_cast<size_t>(bucket)]; }    // its least value
  double high(int bucket) const { return high_[static_cast<size_t>(bucket)]; }  // its largest
  // The first bucket whose largest value is not below `value`; the last one if there is none.
  int at(double value) const;

 private:
  std::vector<double> low_;
  std::vector<double> high_;
};

}  // namespace meshwright::search
