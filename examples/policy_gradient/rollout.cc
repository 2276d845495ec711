#include "rollout.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace policy_gradient {

using meshwright::Result;

Result<Rollout> RollOut(Environments& environments, int64_t horizon, uint64_t seed,
                        const Policy& policy) {
  MW_TRY(environments.Reset(seed));
  const std::vector<Seen>& seen = environments.seen();
  Rollout rollout;
  for (int64_t step = 0; step < horizon; ++step) {
    std::vector<double> observed;
    for (const Seen& one : seen) {
      for (const double x : one.state) observed.push_back(one.stands ? x : 0);
    }
    std::vector<int32_t> actions(seen.size(), 0);
    if (std::any_of(seen.begin(), seen.end(), [](const Seen& one) { return one.stands; })) {
      MW_ASSIGN_OR_RETURN(actions, policy(step, observed));
    }
    for (size_t i = 0; i < seen.size(); ++i) {
      rollout.rewards.push_back(seen[i].stands ? 1 : 0);
      rollout.actions.push_back(seen[i].stands ? actions[i] : 0);
    }
    rollout.observations.insert(rollout.observations.end(), observed.begin(), observed.end());
    MW_TRY(environments.Push(actions));
  }
  return rollout;
}

std::vector<double> AdvantagesOf(const Rollout& rollout, const Sizes& sizes, double discount) {
  const auto width = static_cast<size_t>(sizes.environments);
  std::vector<double> returns = rollout.rewards;
  for (size_t i = returns.size() - width; i-- > 0;) returns[i] += discount * returns[i + width];
  double squares = 0;
  for (size_t first = 0; first < returns.size(); first += width) {
    double* row = &returns[first];
    const double mean = std::accumulate(row, row + width, 0.0) / static_cast<double>(width);
    for (size_t i = 0; i < width; ++i) {
      row[i] = rollout.rewards[first + i] * (row[i] - mean);
      squares += row[i] * row[i];
    }
  }
  const double count = std::accumulate(rollout.rewards.begin(), rollout.rewards.end(), 0.0);
  const double deviation = std::sqrt(squares / count);
  for (double& x : returns) x = deviation > 0 ? x / deviation : 0;
  return returns;
}

double MeanLength(const Rollout& rollout, const Sizes& sizes) {
  const double steps = std::accumulate(rollout.rewards.begin(), rollout.rewards.end(), 0.0);
  return steps / static_cast<double>(sizes.environments);
}

}  // namespace policy_gradient
