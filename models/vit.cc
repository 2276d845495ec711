#include "models/vit.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "models/class_loss.h"
#include "models/hf_config.h"
#include "models/linear.h"

namespace meshwright::models {
namespace {

using client::Batch;
using client::Builder;
using client::Dims;

constexpr double kMiddle = 0.5;  // mean and deviation that nobody says
constexpr double kMostOfAPixel = 255;

class Vit {
 public:
  Vit(Builder& builder, const VitConfig& config) : b_(builder), config_(config) {}

  // pixels i32[b, c, n, n] -> [b, labels]
  ValueId Classes(ValueId pixels) {
    b_.SetLayer(0);
    const Dims dims = b_.dims(pixels);
    if (dims.size() != 4) return pixels;  // after an error
    ValueId x = Embed(Normalised(pixels), dims[0]);
    for (int64_t i = 0; i < config_.layers; ++i) {
      b_.SetLayer(static_cast<int>(i));
      x = Block(x, fmt::format("vit.encoder.layer.{}", i));
    }
    const ValueId first = b_.Slice(Normed(x, "vit.layernorm"), 1, 0, 1);
    const ValueId y = Product(b_, first, "classifier", config_.labels, {.drawn = true});
    return b_.Reshape(y, {dims[0], config_.labels});
  }

 private:
  ValueId Normalised(ValueId pixels) {
    const ValueId x = b_.Scale(b_.Cast(pixels, b_.dtype()), 1 / kMostOfAPixel);
    const auto of = [](const std::vector<double>& values, int64_t channel) {
      return values.empty() ? kMiddle : values[static_cast<size_t>(channel)];
    };
    const auto all_alike = [](const std::vector<double>& values) {
      return std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) ==
             values.end();
    };
    const auto turned = [&](ValueId part, int64_t channel) {
      return b_.Scale(b_.Shift(part, -of(config_.mean, channel)),
                      1 / of(config_.deviation, channel));
    };
    if (all_alike(config_.mean) && all_alike(config_.deviation)) return turned(x, 0);
    std::vector<ValueId> channels;
    for (int64_t c = 0; c < config_.channels; ++c) {
      channels.push_back(turned(b_.Slice(x, 1, c, 1), c));
    }
    return b_.Concat(channels, 1);
  }

  // [b, c, n, n] -> [b, 1 + patches, d]
  ValueId Embed(ValueId x, int64_t rows) {
    const std::string name = "vit.embeddings";
    const int64_t side = config_.image / config_.patch;
    const int64_t p = config_.patch;
    const int64_t d = config_.width;
    const ValueId cut =
        b_.Transpose(b_.Reshape(x, {rows, config_.channels, side, p, side, p}), {0, 2, 4, 1, 3, 5});
    const ValueId weight = b_.Param(name + ".patch_embeddings.projection.weight",
                                    {config_.channels, p, p, d}, {.export_perm = {3, 0, 1, 2}});
    const ValueId said =
        b_.Reshape(b_.Einsum("bhwcpq,cpqd->bhwd", cut, weight), {rows, side * side, d});
    const ValueId patches = b_.AddTo(
        said, b_.Param(name + ".patch_embeddings.projection.bias", {d}, {.init = "zeros"}));
    const ValueId asks = b_.BroadcastTo(b_.Param(name + ".cls_token", {1, 1, d}), {rows, 1, d});
    const ValueId places = b_.Param(name + ".position_embeddings", {1, config_.patches() + 1, d});
    const ValueId all =
        b_.AddTo(b_.Concat({asks, patches}, 1), b_.Reshape(places, {config_.patches() + 1, d}));
    return b_.Dropout(all, config_.dropout, name + ".dropout");
  }

  ValueId Block(ValueId x, const std::string& name) {
    const ValueId heard = Attention(Normed(x, name + ".layernorm_before"), name + ".attention");
    x = b_.AddTo(x, b_.Dropout(heard, config_.dropout, name + ".attention.dropout"));
    const ValueId up = Product(b_, Normed(x, name + ".layernorm_after"),
                               name + ".intermediate.dense", config_.inner);
    const ValueId down =
        Product(b_, Activate(b_, up, config_.activation), name + ".output.dense", config_.width);
    return b_.AddTo(x, b_.Dropout(down, config_.dropout, name + ".output.dropout"));
  }

  ValueId Attention(ValueId x, const std::string& name) {
    const auto part = [&](const char* which) {
      return ToHeads(b_, x, name + ".attention." + which, {config_.heads, config_.head_size()},
                     {.bias = config_.biases});
    };
    client::AttentionOptions options;
    options.causal = false;
    options.dropout = {config_.attention_dropout, name + ".attention.dropout"};
    const ValueId o = b_.Attention(part("query"), part("key"), part("value"), options);
    return FromHeads(b_, o, name + ".output.dense", config_.width);
  }

  ValueId Normed(ValueId x, const std::string& name) {
    return b_.LayerNorm(x, name, config_.epsilon);
  }

  Builder& b_;
  const VitConfig& config_;
};

Status CheckChannels(const char* name, const std::vector<double>& values, int64_t channels) {
  if (values.empty() || static_cast<int64_t>(values.size()) == channels) return OkStatus();
  return InvalidArgument(
      fmt::format("{} has {} numbers for {} channels", name, values.size(), channels));
}

}  // namespace

Status Validate(const VitConfig& config) {
  MW_TRY(CheckPositive({{"image_size", config.image},
                        {"patch_size", config.patch},
                        {"num_channels", config.channels},
                        {"dim", config.width},
                        {"inner width", config.inner},
                        {"n_layers", config.layers},
                        {"n_heads", config.heads},
                        {"n_labels", config.labels}}));
  MW_TRY(CheckLayers(config.layers));
  MW_TRY(CheckHeads(config.width, config.heads));
  MW_TRY(CheckAboveZero("norm_eps", config.epsilon, 1));
  MW_TRY(CheckRate("hidden dropout", config.dropout));
  MW_TRY(CheckRate("attention dropout", config.attention_dropout));
  MW_TRY(CheckChannels("image_mean", config.mean, config.channels));
  MW_TRY(CheckChannels("image_std", config.deviation, config.channels));
  for (const double deviation : config.deviation) {
    MW_TRY(CheckAboveZero("image_std", deviation, 1e6));
  }
  if (config.image % config.patch != 0) {
    return InvalidArgument(
        fmt::format("image_size is {} and patch_size {}; patches divide the image", config.image,
                    config.patch));
  }
  if (config.labels > 1) return OkStatus();
  return Unimplemented(
      "n_labels is 1, which means a number for each image; images have classes here, 2 at least");
}

client::TrainerFunctions MakeVit(const VitConfig& config) {
  client::TrainerFunctions functions;
  functions.inputs = [config](const client::GraphShape& shape) {
    return std::vector<client::InputSpec>{
        {"pixels", {ir::DType::kI32, {shape.batch, config.channels, config.image, config.image}}},
        {"label", {ir::DType::kI32, {shape.batch}}}};
  };
  functions.predict = [config](Builder& builder, const Batch& batch) {
    return Vit(builder, config).Classes(batch.at("pixels"));
  };
  functions.loss = [predict = functions.predict](Builder& builder, const Batch& batch) {
    return ClassLoss(builder, predict(builder, batch), batch.at("label"), -100);
  };
  return functions;
}

int64_t ParamCount(const VitConfig& config) {
  const int64_t d = config.width;
  const int64_t f = config.inner;
  const int64_t layer = 4 * d * d + (config.biases ? 4 : 1) * d + 2 * d * f + f + d + 4 * d;
  const int64_t patch = config.channels * config.patch * config.patch * d + d;
  return patch + (config.patches() + 2) * d + config.layers * layer + 2 * d + d * config.labels +
         config.labels;
}

}  // namespace meshwright::models
