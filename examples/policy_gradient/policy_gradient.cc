#include "policy_gradient.h"

#include <cmath>
#include <random>
#include <string>
#include <utility>

#include "cart_pole.h"
#include "client/program.h"
#include "client/trainer.h"
#include "environments.h"
#include "rollout.h"

namespace policy_gradient {
namespace {

using meshwright::Result;
using meshwright::ValueId;
namespace client = meshwright::client;
namespace ir = meshwright::ir;

constexpr uint64_t kPolicySeeds = uint64_t{1} << 32;  // no environments have such a seed

// [rows, 4] -> [rows, 2]
ValueId Logits(client::Builder& b, ValueId observations) {
  const ValueId hidden = b.Tanh(b.Linear(observations, "hidden", 32, {.std_dev = 0.5}));
  return b.Linear(hidden, "head", CartPole::kActions, {.std_dev = 0.1});
}

// -sum log p(action) * advantage; rows behind the end of an episode have no advantage.
client::Loss PolicyLoss(client::Builder& b, const client::Batch& in, int64_t rows) {
  const ValueId log_p = b.LogSoftmax(Logits(b, in.at("observations")));
  const ValueId chosen = b.Gather(log_p, b.Reshape(in.at("actions"), {rows, 1}), -1);
  const ValueId weighed = b.MulBy(b.Reshape(chosen, {rows}), in.at("advantages"));
  return {b.Neg(b.ReduceSum(weighed, {0})), b.Fill({}, static_cast<double>(rows))};
}

Result<ir::JobRequest> MakeJob(const Options& options) {
  const int64_t rows = options.environments * options.horizon;
  const std::vector<client::InputSpec> trained_on = {
      {"observations", {options.dtype, {rows, kObserved}}},
      {"actions", {ir::DType::kI32, {rows}}},
      {"advantages", {options.dtype, {rows}}}};
  const std::vector<client::InputSpec> asked = {
      {"observations", {options.dtype, {options.environments, kObserved}}}};
  const client::ProgramOptions floats{options.dtype};
  const auto loss = [&](client::Builder& b, const client::Batch& in) {
    return PolicyLoss(b, in, rows);
  };
  const auto policy = [](client::Builder& b, const client::Batch& in) {
    b.SetOutput("logits", Logits(b, in.at("observations")));
    return meshwright::Status();
  };
  MW_ASSIGN_OR_RETURN(ir::JobProgram trained, client::TrainedProgram(trained_on, loss, floats));
  MW_ASSIGN_OR_RETURN(ir::JobProgram answers, client::MakeProgram("policy", asked, policy, floats));
  ir::OptimizerSpec optimizer;
  optimizer.lr = 0.02;
  optimizer.weight_decay = 0;
  return client::JobBuilder("policy-gradient")
      .Batch(rows, 1)
      .Seed(options.seed)
      .DType(options.dtype)
      .Optimizer(optimizer)
      .Parallel(options.parallel)
      .Program(std::move(trained))
      .Program(std::move(answers))
      .DrivenByClient()
      .Build();
}

// Draws the actions of all environments from what "policy" says of their observations.
Policy Asking(client::Session& session, const Options& options, std::mt19937_64& random) {
  return [&](int64_t, const std::vector<double>& observations) -> Result<std::vector<int32_t>> {
    const ir::Dims dims = {options.environments, kObserved};
    MW_ASSIGN_OR_RETURN(
        const client::Answer answer,
        session.Run("policy", {{"observations",
                                client::Tensor::OfReals(options.dtype, dims, observations)}}));
    const std::vector<double> logits = answer.tensors.at("logits").Reals();
    std::uniform_real_distribution<double> uniform(0, 1);
    std::vector<int32_t> actions;
    for (size_t i = 0; i < logits.size(); i += CartPole::kActions) {
      const double right = 1 / (1 + std::exp(logits[i] - logits[i + 1]));
      actions.push_back(uniform(random) < right ? 1 : 0);
    }
    return actions;
  };
}

Policy Replaying(const Actions& actions, int64_t environments) {
  return [&actions, environments](int64_t step,
                                  const std::vector<double>&) -> Result<std::vector<int32_t>> {
    const auto first = actions.begin() + step * environments;
    return std::vector<int32_t>(first, first + environments);
  };
}

Result<double> Train(client::Session& session, const Options& options, const Rollout& rollout) {
  const int64_t rows = options.environments * options.horizon;
  const std::vector<double> advantages =
      AdvantagesOf(rollout, {options.environments, options.horizon}, options.discount);
  MW_ASSIGN_OR_RETURN(
      const client::Answer answer,
      session.Run("step",
                  {{"observations", client::Tensor::OfReals(options.dtype, {rows, kObserved},
                                                            rollout.observations)},
                   {"actions", client::Tensor::Of<int32_t>({rows}, rollout.actions)},
                   {"advantages", client::Tensor::OfReals(options.dtype, {rows}, advantages)}}));
  return answer.values.at("loss");
}

meshwright::Status CheckReplay(const Options& options) {
  if (options.replayed.empty()) return {};
  const auto updates = static_cast<size_t>(options.updates);
  const auto rows = static_cast<size_t>(options.environments * options.horizon);
  bool fits = options.replayed.size() == updates;
  for (const Actions& actions : options.replayed) fits = fits && actions.size() == rows;
  if (fits) return {};
  return meshwright::InvalidArgument("replayed actions must be " + std::to_string(rows) +
                                     " in each of " + std::to_string(updates) + " updates");
}

}  // namespace

Result<Outcome> Run(client::Client& client, const Options& options) {
  MW_TRY(CheckReplay(options));
  MW_ASSIGN_OR_RETURN(const ir::JobRequest job, MakeJob(options));
  MW_ASSIGN_OR_RETURN(const auto session, client.OpenSession(job));
  MW_ASSIGN_OR_RETURN(Environments environments,
                      Environments::Spawn(*session, options.environments));
  const Sizes sizes{options.environments, options.horizon};
  std::mt19937_64 random(kPolicySeeds + options.seed);
  Outcome outcome;
  for (int64_t update = 0; update < options.updates; ++update) {
    const auto index = static_cast<size_t>(update);
    const Policy policy = options.replayed.empty()
                              ? Asking(*session, options, random)
                              : Replaying(options.replayed[index], options.environments);
    const uint64_t seed = options.seed + static_cast<uint64_t>(update);
    MW_ASSIGN_OR_RETURN(Rollout rollout, RollOut(environments, options.horizon, seed, policy));
    MW_ASSIGN_OR_RETURN(const double loss, Train(*session, options, rollout));
    outcome.losses.push_back(loss);
    outcome.lengths.push_back(MeanLength(rollout, sizes));
    outcome.actions.push_back(std::move(rollout.actions));
    options.on_update(update, outcome.lengths.back());
  }
  MW_TRY(session->Close());
  return outcome;
}

}  // namespace policy_gradient
