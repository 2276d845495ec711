#include "data/mixture.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace meshwright::data {

MixedSample SampleOfMixture(const std::vector<int64_t>& weights, int64_t sample) {
  MW_CHECK(!weights.empty() && sample >= 0)
      << "sample " << sample << " of " << weights.size() << " parts";
  int64_t total = std::accumulate(weights.begin(), weights.end(), int64_t{0});
  // Samples of this part among the first n that are of it or of a later one.
  const auto share = [&total](int64_t n, int64_t weight) {
    return static_cast<int64_t>(static_cast<__int128>(n) * weight / total);
  };
  for (size_t part = 0; part + 1 < weights.size(); ++part) {
    MW_CHECK(weights[part] >= 1 && weights[part] <= total) << "weight " << weights[part];
    const int64_t before = share(sample, weights[part]);
    if (share(sample + 1, weights[part]) > before) return {part, before};
    sample -= before;
    total -= weights[part];
  }
  return {weights.size() - 1, sample};
}

bool TakesTurns(const std::vector<ir::DataPart>& parts) {
  return !parts.empty() && std::all_of(parts.begin(), parts.end(),
                                       [](const ir::DataPart& part) { return part.weight == 0; });
}

MixedSample SampleOfTurns(const std::vector<int64_t>& counts, int64_t sample) {
  const int64_t round = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  MW_CHECK(round > 0 && sample >= 0) << "sample " << sample << " of rounds of " << round;
  int64_t rest = sample % round;
  size_t part = 0;
  while (rest >= counts[part]) rest -= counts[part++];
  return {part, sample / round * counts[part] + rest};
}

}  // namespace meshwright::data
