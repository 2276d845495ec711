#include "models/mixture.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "models/hf_config.h"

namespace meshwright::models {
namespace {

using client::Batch;
using client::Builder;
using client::MixtureOfExperts;

// What is added to the loss of the tokens.
class RouterLosses {
 public:
  RouterLosses(Builder& builder, const MixtureConfig& config)
      : b_(builder), config_(config), balance_(builder, config.balance_form) {}

  void Add(const MixtureOfExperts& mixture) {
    if (config_.balance_loss > 0) balance_.Add(mixture);
    if (config_.z_loss > 0) AddTo(z_, mixture.z);
    if (mixture.steering.valid()) AddTo(steering_, mixture.steering);
  }

  // counted: [b], the tokens of each row that count.
  ValueId AddedTo(ValueId loss_sum, ValueId counted) const {
    const ValueId balance = balance_.Sum(counted);
    if (balance.valid()) {
      loss_sum = b_.AddTo(loss_sum, b_.Scale(balance, config_.balance_loss));
    }
    if (z_.valid()) {
      const ValueId of_rows = b_.ReduceSum(b_.MulBy(z_, counted), {0});
      loss_sum = b_.AddTo(loss_sum, b_.Scale(of_rows, config_.z_loss));
    }
    return steering_.valid() ? b_.AddTo(loss_sum, b_.ReduceSum(steering_, {0})) : loss_sum;
  }

 private:
  void AddTo(ValueId& sum, ValueId value) const {
    sum = sum.valid() ? b_.AddTo(sum, value) : value;
  }

  Builder& b_;
  const MixtureConfig& config_;
  client::BalanceLoss balance_;
  ValueId z_;         // [b]
  ValueId steering_;  // [b]
};

// How files have the weights of the experts of a block.
class ExpertFile {
 public:
  // Of gate and up, which of both; no number: of down.
  struct Part {
    std::string name;
    std::optional<int64_t> of_two;
  };

  ExpertFile(const MixtureConfig& config, const std::string& block)
      : config_(config), block_(block) {}

  // Of a param [experts, in, out].
  client::ParamOptions Matrix(const Part& part) const {
    client::ParamOptions options;
    if (!part.of_two) options.std_dev = ResidualStd(config_.llama);
    if (config_.names.files == ExpertFiles::kInTurn) {
      InTurn(part, 2, options);
      return options;
    }
    options.export_name =
        fmt::format("{}.{}.experts.{{}}.{}.weight", block_, config_.names.layer, part.name);
    options.export_perm = {0, 2, 1};
    options.stored = {.name = fmt::format("{}.{}.experts.{}", block_, config_.names.stored_layer,
                                          part.of_two ? "gate_up_proj" : "down_proj"),
                      .perm = {0, 2, 1}};
    if (part.of_two) {
      options.stored.rows = 2 * config_.llama.inner;
      options.stored.row = *part.of_two * config_.llama.inner;
      options.stored.dim = 1;
    }
    return options;
  }

  // Of a param [experts, 1, out].
  client::ParamOptions Bias(const Part& part) const {
    client::ParamOptions options;
    if (config_.names.files == ExpertFiles::kApart) {
      options.export_name =
          fmt::format("{}.{}.experts.{{}}.{}.bias", block_, config_.names.layer, part.name);
      options.export_shape = {part.of_two ? config_.llama.inner : config_.llama.width};
      return options;
    }
    options.export_shape = {config_.experts.experts,
                            part.of_two ? config_.llama.inner : config_.llama.width};
    InTurn(part, 1, options);
    options.export_name += "_bias";
    return options;
  }

 private:
  // dim: of the tensor in the file, that of gate and up.
  void InTurn(const Part& part, int64_t dim, client::ParamOptions& options) const {
    options.export_name = fmt::format("{}.{}.experts.{}", block_, config_.names.layer,
                                      part.of_two ? "gate_up_proj" : "down_proj");
    if (!part.of_two) return;
    options.export_rows = 2 * config_.llama.inner;
    options.export_row = *part.of_two;
    options.export_dim = dim;
    options.export_step = 2;
  }

  const MixtureConfig& config_;
  const std::string& block_;
};

class Mixture {
 public:
  Mixture(Builder& builder, const MixtureConfig& config)
      : b_(builder), config_(config), losses_(builder, config) {}

  ValueId Logits(ValueId tokens) {
    return LlamaLogits(b_, config_.llama, tokens, [this](ValueId x, const LlamaBlock& block) {
      if (block.index < config_.dense_layers) {
        return GatedMlp(b_, config_.llama, x, block.name + ".mlp", config_.dense_inner);
      }
      return Experts(x, block.name);
    });
  }

  const RouterLosses& losses() const { return losses_; }

 private:
  ValueId Gated(ValueId gate, ValueId up) {
    if (config_.glu_limit == 0) return b_.MulBy(b_.Silu(gate), up);
    const ValueId most = b_.Fill({}, config_.glu_limit);
    const ValueId low = b_.Minimum(gate, most);
    const ValueId within = b_.Maximum(b_.Minimum(up, most), b_.Neg(most));
    return b_.MulBy(b_.Shift(within, 1),
                    b_.MulBy(low, b_.Sigmoid(b_.Scale(low, config_.glu_slope))));
  }

  // block: "model.layers.N"
  ValueId Experts(ValueId x, const std::string& block) {
    const LlamaConfig& llama = config_.llama;
    const std::string name = fmt::format("{}.{}", block, config_.names.layer);
    client::ExpertOptions options = config_.experts;
    if (config_.names.layer != config_.names.stored_layer) {
      options.stored_gate = fmt::format("{}.{}.gate.weight", block, config_.names.stored_layer);
    }
    const MixtureOfExperts mixture = RouteToExperts(b_, x, name, options);
    const std::string of_experts = name + ".experts.";
    const ExpertFile file(config_, block);
    const auto product = [&](ValueId of, const ExpertFile::Part& part, int64_t out) {
      const ValueId y = mixture.Matmul(of, of_experts + part.name, out, file.Matrix(part));
      if (!config_.expert_bias) return y;
      return mixture.AddBias(y, of_experts + part.name + "_bias", file.Bias(part));
    };
    const ValueId gate = product(mixture.slots, {config_.names.gate, 0}, llama.inner);
    const ValueId up = product(mixture.slots, {config_.names.up, 1}, llama.inner);
    const ValueId down = product(Gated(gate, up), {config_.names.down, {}}, llama.width);
    losses_.Add(mixture);
    const ValueId y = mixture.Combine(down);
    return config_.shared_inner > 0 ? b_.AddTo(y, Shared(x, name)) : y;
  }

  ValueId Shared(ValueId x, const std::string& layer) {
    const std::string name = fmt::format("{}.{}", layer, config_.names.shared);
    const ValueId y = GatedMlp(b_, config_.llama, x, name, config_.shared_inner);
    if (!config_.shared_gated) return y;
    const ValueId gate = b_.Param(name + "_gate.weight", {1, config_.llama.width});
    return b_.MulBy(y, b_.Sigmoid(b_.Einsum("bsd,ed->bse", x, gate)));
  }

  Builder& b_;
  const MixtureConfig& config_;
  RouterLosses losses_;
};

// Of each row [b], how many labels count.
ValueId CountedOfRows(Builder& builder, ValueId labels, int64_t ignore_index) {
  const ValueId numbers = builder.Cast(labels, builder.dtype());
  const ValueId ignored = builder.Fill({}, static_cast<double>(ignore_index));
  const ValueId counts = builder.NotEqual(numbers, ignored);
  return builder.ReduceSum(builder.Cast(counts, builder.dtype()), {1});
}

}  // namespace

Status Validate(const MixtureConfig& config) {
  MW_TRY(Validate(config.llama));
  MW_TRY(client::Validate(config.experts));
  for (const auto& [name, value] :
       {std::pair("balance_loss", config.balance_loss), std::pair("z_loss", config.z_loss)}) {
    if (!(value >= 0 && value <= 1e6)) {
      return InvalidArgument(fmt::format("{} is {}; 0, or a number up to 1e6", name, value));
    }
  }
  if (std::holds_alternative<client::ExpertChoice>(config.experts.router) &&
      config.balance_loss > 0) {
    return InvalidArgument(
        "balance_loss: experts that choose tokens (router \"expert_choice\") have equal loads; "
        "remove it");
  }
  if (!(config.glu_limit >= 0 && config.glu_limit <= 1e6)) {
    return InvalidArgument(
        fmt::format("glu_limit is {}; 0 (SwiGLU), or a number up to 1e6", config.glu_limit));
  }
  if (config.shared_inner < 0) {
    return InvalidArgument(
        fmt::format("shared_ffn_dim is {}; 0 (none) or a width", config.shared_inner));
  }
  if (config.dense_layers < 0 || config.dense_layers >= config.llama.layers) {
    return InvalidArgument(
        fmt::format("first_dense_layers is {} of {} layers; at least one must have experts, or use "
                    "model \"llama\"",
                    config.dense_layers, config.llama.layers));
  }
  if (config.dense_layers > 0 && config.dense_inner < 1) {
    return InvalidArgument(
        fmt::format("first_dense_layers is {}, and dense_ffn_dim, the width of their MLP, is {}; "
                    "set it",
                    config.dense_layers, config.dense_inner));
  }
  return OkStatus();
}

client::TrainerFunctions MakeMixture(const MixtureConfig& config) {
  client::TrainerFunctions functions;
  functions.predict = [config](Builder& builder, const Batch& batch) {
    return Mixture(builder, config).Logits(batch.at("tokens"));
  };
  functions.loss = [config](Builder& builder, const Batch& batch) {
    Mixture model(builder, config);
    const ValueId logits = model.Logits(batch.at("tokens"));
    const ValueId labels = batch.at("labels");
    client::Loss loss = builder.CrossEntropy(logits, labels, config.llama.ignore_index);
    const ValueId counted = CountedOfRows(builder, labels, config.llama.ignore_index);
    loss.loss_sum = model.losses().AddedTo(loss.loss_sum, counted);
    return loss;
  };
  return functions;
}

namespace {

int64_t RouterParams(const MixtureConfig& config) {
  const int64_t experts = config.experts.experts;
  const int64_t matrix = config.llama.width * experts;
  const client::Router& router = config.experts.router;
  if (std::holds_alternative<client::NoisyTop>(router)) return 2 * matrix;
  const auto* of_top = std::get_if<client::SoftmaxOfTop>(&router);
  const bool bias =
      std::holds_alternative<client::TopOfSigmoid>(router) || (of_top != nullptr && of_top->bias);
  return matrix + (bias ? experts : 0);
}

int64_t CountWith(const MixtureConfig& config, int64_t experts) {
  const int64_t d = config.llama.width;
  const int64_t matrices = 3 * d * config.llama.inner;
  const int64_t expert = matrices + (config.expert_bias ? 2 * config.llama.inner + d : 0);
  const int64_t shared =
      3 * d * config.shared_inner + (config.shared_inner > 0 && config.shared_gated ? d : 0);
  return ParamCount(config.llama) - config.llama.layers * matrices +
         config.dense_layers * 3 * d * config.dense_inner +
         config.expert_layers() * (experts * expert + shared + RouterParams(config));
}

}  // namespace

int64_t ParamCount(const MixtureConfig& config) {
  return CountWith(config, config.experts.experts);
}

int64_t ActiveParamCount(const MixtureConfig& config) {
  return CountWith(config, config.experts.chosen);
}

}  // namespace meshwright::models
