#include "search/stage_buckets.h"

#include <algorithm>

namespace meshwright::search {

CostBuckets::CostBuckets(std::vector<double> values, double ratio) {
  std::sort(values.begin(), values.end());
  for (double value : values) {
    if (low_.empty() || value > low_.back() * (1 + ratio)) {
      low_.push_back(value);
      high_.push_back(value);
    }
    high_.back() = value;
  }
}

int CostBuckets::at(double value) const {
  const auto bucket = std::lower_bound(high_.begin(), high_.end(), value);
  return static_cast<int>(bucket == high_.end() ? high_.size() - 1
                                                : static_cast<size_t>(bucket - high_.begin()));
}

}  // namespace meshwright::search
