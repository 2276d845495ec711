#include "web/history.h"

#include <algorithm>

namespace meshwright::web {
namespace {

void AddTo(Sample& sum, const Sample& sample) {
  for (size_t i = 0; i < kGaugeCount; ++i) sum.values[i] += sample.values[i];
  sum.unix_ms = sample.unix_ms;
}

Sample MeanOf(const Sample& sum, int64_t count) {
  Sample mean = sum;
  for (double& value : mean.values) value /= static_cast<double>(count);
  return mean;
}

// Neighbours become one.
std::vector<Sample> Thinned(const std::vector<Sample>& samples, size_t most) {
  if (samples.size() <= most) return samples;
  const size_t group = (samples.size() + most - 1) / most;
  std::vector<Sample> thin;
  Sample sum;
  int64_t count = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    AddTo(sum, samples[i]);
    ++count;
    if (count < static_cast<int64_t>(group) && i + 1 < samples.size()) continue;
    thin.push_back(MeanOf(sum, count));
    sum = Sample{};
    count = 0;
  }
  return thin;
}

}  // namespace

void History::Add(const Sample& sample) {
  for (size_t i = 0; i < rings_.size(); ++i) {
    Ring& ring = rings_[i];
    if (ring.count > 0 && sample.unix_ms - ring.since_ms >= kTiers[i].every_ms) {
      ring.samples.push_back(MeanOf(ring.sum, ring.count));
      if (ring.samples.size() > kTiers[i].most) ring.samples.pop_front();
      ring.sum = Sample{};
      ring.count = 0;
    }
    if (ring.count == 0) ring.since_ms = sample.unix_ms;
    AddTo(ring.sum, sample);
    ++ring.count;
  }
}

std::vector<Sample> History::Since(int64_t unix_ms, size_t most) const {
  std::vector<Sample> found;
  const Ring& finest = rings_.front();
  if (finest.count > 0) found.push_back(MeanOf(finest.sum, finest.count));
  // From the newest backwards: of a coarser ring what is older than all that the finer ones hold.
  for (const Ring& ring : rings_) {
    for (auto it = ring.samples.rbegin(); it != ring.samples.rend(); ++it) {
      if (found.empty() || it->unix_ms < found.back().unix_ms) found.push_back(*it);
    }
  }
  while (!found.empty() && found.back().unix_ms < unix_ms) found.pop_back();
  std::reverse(found.begin(), found.end());
  return Thinned(found, most);
}

}  // namespace meshwright::web
