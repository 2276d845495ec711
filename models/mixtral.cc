#include "models/mixtral.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "models/hf_config.h"

namespace meshwright::models {
namespace {

using client::Batch;
using client::Builder;
using client::MixtureOfExperts;

class Mixtral {
 public:
  Mixtral(Builder& builder, const MixtralConfig& config) : b_(builder), config_(config) {}

  ValueId Logits(ValueId tokens) {
    return LlamaLogits(b_, config_.llama, tokens, [this](ValueId x, const std::string& name) {
      return Experts(x, name + ".block_sparse_moe");
    });
  }

  // The losses of balance of all layers for one token of a row, [b]; invalid: there are none.
  ValueId balance() const { return balance_; }

 private:
  ValueId Experts(ValueId x, const std::string& name) {
    const MixtureOfExperts mixture = RouteToExperts(b_, x, name, config_.experts);
    const ValueId gate = mixture.Matmul(mixture.slots, name + ".experts.w1", config_.llama.inner);
    const ValueId up = mixture.Matmul(mixture.slots, name + ".experts.w3", config_.llama.inner);
    const ValueId down =
        mixture.Matmul(b_.MulBy(b_.Silu(gate), up), name + ".experts.w2", config_.llama.width,
                       {.std_dev = ResidualStd(config_.llama)});
    Count(mixture.balance, config_.balance_loss);
    Count(mixture.z, config_.z_loss);
    return mixture.Combine(down);
  }

  void Count(ValueId loss, double coefficient) {
    if (coefficient == 0) return;
    const ValueId scaled = b_.Scale(loss, coefficient);
    balance_ = balance_.valid() ? b_.AddTo(balance_, scaled) : scaled;
  }

  Builder& b_;
  const MixtralConfig& config_;
  ValueId balance_;
};

}  // namespace

Status Validate(const MixtralConfig& config) {
  MW_TRY(Validate(config.llama));
  MW_TRY(client::Validate(config.experts));
  for (const auto& [name, value] :
       {std::pair("balance_loss", config.balance_loss), std::pair("z_loss", config.z_loss)}) {
    if (!(value >= 0 && value <= 1e6)) {
      return InvalidArgument(fmt::format("{} is {}; 0, or a number up to 1e6", name, value));
    }
  }
  return OkStatus();
}

client::TrainerFunctions MakeMixtral(const MixtralConfig& config) {
  client::TrainerFunctions functions;
  functions.predict = [config](Builder& builder, const Batch& batch) {
    return Mixtral(builder, config).Logits(batch.at("tokens"));
  };
  functions.loss = [config](Builder& builder, const Batch& batch) {
    const ValueId tokens = batch.at("tokens");
    Mixtral model(builder, config);
    const ValueId logits = model.Logits(tokens);
    client::Loss loss = builder.CrossEntropy(logits, batch.at("labels"), config.llama.ignore_index);
    const client::Dims dims = builder.dims(tokens);
    if (model.balance().valid() && dims.size() == 2) {
      const ValueId of_rows = builder.ReduceSum(model.balance(), {0});
      loss.loss_sum =
          builder.AddTo(loss.loss_sum, builder.Scale(of_rows, static_cast<double>(dims[1])));
    }
    return loss;
  };
  return functions;
}

namespace {

int64_t CountWith(const MixtralConfig& config, int64_t experts) {
  const int64_t d = config.llama.width;
  const int64_t dense = 3 * d * config.llama.inner;
  const int64_t router = d * config.experts.experts;
  return ParamCount(config.llama) + config.llama.layers * ((experts - 1) * dense + router);
}

}  // namespace

int64_t ParamCount(const MixtralConfig& config) {
  return CountWith(config, config.experts.experts);
}

int64_t ActiveParamCount(const MixtralConfig& config) {
  return CountWith(config, config.experts.chosen);
}

}  // namespace meshwright::models
