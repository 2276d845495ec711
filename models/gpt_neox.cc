#include "models/gpt_neox.h"

#include <fmt/format.h>

#include "client/paged_layers.h"
#include "models/hf_config.h"
#include "models/language_model.h"
#include "models/linear.h"

namespace meshwright::models {
namespace {

using client::Builder;
using client::Dims;

class GptNeox {
 public:
  GptNeox(Builder& builder, const GptNeoxConfig& config) : b_(builder), config_(config) {}

  // tokens i32[b, s] -> logits [b, s, v]
  ValueId Logits(ValueId tokens) {
    b_.SetLayer(0);
    CheckSequence(b_, tokens, config_.positions);
    segments_ = client::DocumentsOf(b_, tokens, config_.document_separator);
    const Dims table = {config_.vocabulary, config_.width};
    const ValueId embedding = b_.Param("gpt_neox.embed_in.weight", table);
    ValueId x = b_.Lookup(embedding, tokens);
    x = b_.Dropout(x, config_.residual_dropout, "gpt_neox.emb_dropout");
    for (int64_t i = 0; i < config_.layers; ++i) {
      b_.SetLayer(static_cast<int>(i));
      x = Block(x, fmt::format("gpt_neox.layers.{}", i));
    }
    x = b_.LayerNorm(client::Wanted(b_, x), "gpt_neox.final_layer_norm", config_.epsilon);
    const ValueId head = config_.tied ? embedding : b_.Param("embed_out.weight", table);
    return b_.Einsum("bsd,vd->bsv", x, head);
  }

 private:
  ValueId Block(ValueId x, const std::string& name) {
    const ValueId normed = b_.LayerNorm(x, name + ".input_layernorm", config_.epsilon);
    const ValueId attention =
        b_.Dropout(Attention(normed, name + ".attention"), config_.residual_dropout,
                   name + ".post_attention_dropout");
    if (!config_.parallel_residual) x = b_.AddTo(x, attention);
    const ValueId read = b_.LayerNorm(x, name + ".post_attention_layernorm", config_.epsilon);
    const ValueId mlp =
        b_.Dropout(Mlp(read, name + ".mlp"), config_.residual_dropout, name + ".post_mlp_dropout");
    return b_.AddTo(x, config_.parallel_residual ? b_.AddTo(attention, mlp) : mlp);
  }

  ValueId Attention(ValueId x, const std::string& name) {
    const int64_t d = config_.width;
    const int64_t h = config_.heads;
    const int64_t e = config_.head_size();
    // In files each head has its q, k and v one behind the other.
    const ValueId weight = b_.Param(name + ".query_key_value.weight", {d, 3, h, e},
                                    {.export_perm = {2, 1, 3, 0}, .export_shape = {3 * d, d}});
    ValueId qkv = b_.Einsum("bsd,dthe->bsthe", x, weight);
    if (config_.attention_bias) {
      const client::ParamOptions bias = {
          .init = "zeros", .decay = 0, .export_perm = {1, 0, 2}, .export_shape = {3 * d}};
      qkv = b_.AddTo(qkv, b_.Param(name + ".query_key_value.bias", {3, h, e}, bias));
    }
    const Dims dims = b_.dims(qkv);
    if (dims.size() != 5) return x;  // after an error
    const auto part = [&](int64_t which) {
      return b_.Reshape(b_.Slice(qkv, 2, which, 1), {dims[0], dims[1], h, e});
    };
    const Rope rope = config_.rope();
    const ValueId o = b_.Attention(Turn(b_, part(0), rope), Turn(b_, part(1), rope), part(2),
                                   {config_.attention_dropout, name + ".dropout"}, segments_);
    return FromHeads(b_, o, name + ".dense", d,
                     {config_.attention_bias, ResidualStdOf(config_.layers)});
  }

  ValueId Mlp(ValueId x, const std::string& name) {
    const ValueId up = Product(b_, x, name + ".dense_h_to_4h", config_.inner);
    return Product(b_, Activate(b_, up, config_.activation), name + ".dense_4h_to_h", config_.width,
                   {true, ResidualStdOf(config_.layers)});
  }

  Builder& b_;
  const GptNeoxConfig& config_;
  ValueId segments_;  // invalid: a row is one document
};

}  // namespace

Status Validate(const GptNeoxConfig& config) {
  MW_TRY(CheckPositive({{"vocab_size", config.vocabulary},
                        {"dim", config.width},
                        {"inner width", config.inner},
                        {"n_layers", config.layers},
                        {"n_heads", config.heads}}));
  MW_TRY(CheckLayers(config.layers));
  MW_TRY(CheckSeparator(config.document_separator, config.vocabulary));
  MW_TRY(CheckHeads(config.width, config.heads));
  if (!(config.rope_part > 0 && config.rope_part <= 1)) {
    return InvalidArgument(
        fmt::format("model: rotary_pct is {}; it must be above 0 and at most 1", config.rope_part));
  }
  MW_TRY(Validate(config.rope()));
  MW_TRY(CheckAboveZero("norm_eps", config.epsilon, 1));
  MW_TRY(CheckRate("residual dropout", config.residual_dropout));
  return CheckRate("attention dropout", config.attention_dropout);
}

client::TrainerFunctions MakeGptNeox(const GptNeoxConfig& config) {
  return LanguageModel<GptNeox>(config);
}

int64_t ParamCount(const GptNeoxConfig& config) {
  const int64_t d = config.width;
  const int64_t f = config.inner;
  const int64_t attention = 4 * d * d + (config.attention_bias ? 4 * d : 0);
  const int64_t mlp = 2 * d * f + f + d;
  return config.vocabulary * d * (config.tied ? 1 : 2) + config.layers * (attention + mlp + 4 * d) +
         2 * d;
}

}  // namespace meshwright::models
