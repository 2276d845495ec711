// One episode of each of some environments, and how much better than usual each action turned out.
//
// Thread rule: one thread; the rest are values and pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"
#include "environments.h"

namespace policy_gradient {

// Rows are [horizon, environments]; behind the end of an episode all of a row is 0.
struct Rollout {
  std::vector<double> observations;  // [horizon, environments, 4]
  std::vector<int32_t> actions;
  std::vector<double> rewards;  // 1: the pole stood before the action
};

struct Sizes {
  int64_t environments = 0;
  int64_t horizon = 0;  // most steps of an episode
};

// The actions of all environments at a step, from their observations [environments, 4].
using Policy = std::function<meshwright::Result<std::vector<int32_t>>(
    int64_t step, const std::vector<double>& observations)>;

// Errors: those of the policy and of the environments.
meshwright::Result<Rollout> RollOut(Environments& environments, int64_t horizon, uint64_t seed,
                                    const Policy& policy);

// Per row: the discounted rewards from there on, without the mean of all environments at this step,
// over the deviation of all rows that count; 0 behind the end of an episode.
std::vector<double> AdvantagesOf(const Rollout& rollout, const Sizes& sizes, double discount);

// Steps until the pole fell, the mean of the environments.
double MeanLength(const Rollout& rollout, const Sizes& sizes);

}  // namespace policy_gradient
