#include "rollout.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "cart_pole.h"

namespace policy_gradient {

using meshwright::Result;

Result<Rollout> RollOut(const Sizes& sizes, uint64_t seed, const Policy& policy) {
  std::mt19937_64 random(seed);
  std::vector<CartPole> poles;
  for (int64_t i = 0; i < sizes.environments; ++i) poles.emplace_back(random);
  Rollout rollout;
  for (int64_t step = 0; step < sizes.horizon; ++step) {
    std::vector<double> observed;
    for (const CartPole& pole : poles) {
      for (const double x : pole.state()) observed.push_back(pole.fallen() ? 0 : x);
    }
    const bool over =
        std::all_of(poles.begin(), poles.end(), [](const auto& pole) { return pole.fallen(); });
    std::vector<int32_t> actions(poles.size(), 0);
    if (!over) {
      MW_ASSIGN_OR_RETURN(actions, policy(step, observed));
    }
    for (size_t i = 0; i < poles.size(); ++i) {
      const bool stands = !poles[i].fallen();
      rollout.rewards.push_back(stands ? 1 : 0);
      rollout.actions.push_back(stands ? actions[i] : 0);
      if (stands) poles[i].Push(actions[i]);
    }
    rollout.observations.insert(rollout.observations.end(), observed.begin(), observed.end());
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
