// REINFORCE on cart poles: a policy learns from what its own actions led to.
//
// The environments are host actors (worker.cc), spread over the workers. For each of their steps
// the program "policy" gives the logits of the actions of all environments at once, and all of them
// are asked at once; after an episode of each, "step" trains on the observations, the actions and
// their advantages. Thread rule: one thread. Source: Williams, "Simple Statistical
// Gradient-Following Algorithms for Connectionist Reinforcement Learning", 1992.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"
#include "client/client.h"
#include "ir/job.h"

namespace policy_gradient {

// What the environments were told in one update: [horizon, environments].
using Actions = std::vector<int32_t>;

struct Options {
  int64_t updates = 60;
  int64_t environments = 16;
  int64_t horizon = 100;  // most steps of an episode
  double discount = 0.97;
  uint64_t seed = 1;
  meshwright::ir::DType dtype = meshwright::ir::DType::kF32;
  meshwright::ir::ParallelSpec parallel = meshwright::ir::OpenParallel();
  // Per update: these actions are taken, and the policy is not asked. Empty: it is.
  std::vector<Actions> replayed;
  std::function<void(int64_t update, double length)> on_update = [](int64_t, double) {};
};

struct Outcome {
  std::vector<double> losses;    // per update
  std::vector<double> lengths;   // per update: steps until the pole fell, the mean of the episodes
  std::vector<Actions> actions;  // per update
};

// The cluster has workers of this example. Errors: kInvalidArgument: replayed actions that are not
// as many as the options say; why the job was refused, or ended.
meshwright::Result<Outcome> Run(meshwright::client::Client& client, const Options& options);

}  // namespace policy_gradient
