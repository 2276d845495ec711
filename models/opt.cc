#include "models/opt.h"

#include <fmt/format.h>

#include "client/paged_layers.h"
#include "models/hf_config.h"
#include "models/language_model.h"
#include "models/linear.h"

namespace meshwright::models {
namespace {

using client::Builder;
using client::Dims;

constexpr int64_t kRowsInFront = 2;  // of the table of positions

class Opt {
 public:
  Opt(Builder& builder, const OptConfig& config) : b_(builder), config_(config) {}

  // tokens i32[b, s] -> logits [b, s, v]
  ValueId Logits(ValueId tokens) {
    b_.SetLayer(0);
    CheckSequence(b_, tokens, config_.positions);
    segments_ = client::DocumentsOf(b_, tokens, config_.document_separator);
    const Dims table = {config_.vocabulary, config_.table_width()};
    const ValueId embedding = b_.Param("model.decoder.embed_tokens.weight", table);
    ValueId x = Embed(embedding, tokens);
    for (int64_t i = 0; i < config_.layers; ++i) {
      b_.SetLayer(static_cast<int>(i));
      x = Block(x, fmt::format("model.decoder.layers.{}", i));
    }
    x = client::Wanted(b_, x);
    if (config_.norm_before && config_.final_norm) {
      x = b_.LayerNorm(x, "model.decoder.final_layer_norm", config_.epsilon);
    }
    if (config_.table_width() != config_.width) {
      x = Product(b_, x, "model.decoder.project_out", config_.table_width(), {.bias = false});
    }
    const ValueId head = config_.tied ? embedding : b_.Param("lm_head.weight", table);
    return b_.Einsum("bsd,vd->bsv", x, head);
  }

 private:
  ValueId Embed(ValueId embedding, ValueId tokens) {
    ValueId x = b_.Lookup(embedding, tokens);
    const Dims dims = b_.dims(x);
    if (dims.size() != 3) return x;  // after an error
    if (config_.table_width() != config_.width) {
      x = Product(b_, x, "model.decoder.project_in", config_.width, {.bias = false});
    }
    const ValueId places = b_.Param("model.decoder.embed_positions.weight",
                                    {config_.positions + kRowsInFront, config_.width});
    const ValueId counted = b_.Slice(places, 0, kRowsInFront, config_.positions);
    return b_.AddTo(x, client::AtPositions(b_, counted, tokens));
  }

  ValueId Block(ValueId x, const std::string& name) {
    x = Around(x, name + ".self_attn_layer_norm", name + ".attention_dropout",
               [&](ValueId read) { return Attention(read, name + ".self_attn"); });
    return Around(x, name + ".final_layer_norm", name + ".mlp_dropout",
                  [&](ValueId read) { return Mlp(read, name); });
  }

  // What is said of x is added to it; the norm is before or behind.
  template <typename Say>
  ValueId Around(ValueId x, const std::string& norm, const std::string& dropout, const Say& say) {
    const ValueId read = config_.norm_before ? b_.LayerNorm(x, norm, config_.epsilon) : x;
    const ValueId sum = b_.AddTo(x, b_.Dropout(say(read), config_.residual_dropout, dropout));
    return config_.norm_before ? sum : b_.LayerNorm(sum, norm, config_.epsilon);
  }

  ValueId Attention(ValueId x, const std::string& name) {
    const Dims heads = {config_.heads, config_.head_size()};
    const auto part = [&](const char* which) {
      return ToHeads(b_, x, name + which, heads, {.bias = config_.bias});
    };
    const ValueId o = b_.Attention(part(".q_proj"), part(".k_proj"), part(".v_proj"),
                                   {config_.attention_dropout, name + ".dropout"}, segments_);
    return FromHeads(b_, o, name + ".out_proj", config_.width,
                     {config_.bias, ResidualStdOf(config_.layers)});
  }

  ValueId Mlp(ValueId x, const std::string& name) {
    const ValueId up = Product(b_, x, name + ".fc1", config_.inner, {.bias = config_.bias});
    return Product(b_, Activate(b_, up, config_.activation), name + ".fc2", config_.width,
                   {config_.bias, ResidualStdOf(config_.layers)});
  }

  Builder& b_;
  const OptConfig& config_;
  ValueId segments_;  // invalid: a row is one document
};

}  // namespace

Status Validate(const OptConfig& config) {
  MW_TRY(CheckPositive({{"vocab_size", config.vocabulary},
                        {"positions", config.positions},
                        {"dim", config.width},
                        {"word_embed_proj_dim", config.table_width()},
                        {"inner width", config.inner},
                        {"n_layers", config.layers},
                        {"n_heads", config.heads}}));
  MW_TRY(CheckLayers(config.layers));
  MW_TRY(CheckSeparator(config.document_separator, config.vocabulary));
  MW_TRY(CheckHeads(config.width, config.heads));
  MW_TRY(CheckAboveZero("norm_eps", config.epsilon, 1));
  MW_TRY(CheckRate("residual dropout", config.residual_dropout));
  return CheckRate("attention dropout", config.attention_dropout);
}

client::TrainerFunctions MakeOpt(const OptConfig& config) { return LanguageModel<Opt>(config); }

int64_t ParamCount(const OptConfig& config) {
  const int64_t d = config.width;
  const int64_t f = config.inner;
  const int64_t layer = 4 * d * d + 2 * d * f + 4 * d + (config.bias ? 5 * d + f : 0);
  const int64_t table = config.vocabulary * config.table_width();
  const int64_t projections = config.table_width() != d ? 2 * d * config.table_width() : 0;
  return table * (config.tied ? 1 : 2) + (config.positions + kRowsInFront) * d + projections +
         config.layers * layer + (config.norm_before && config.final_norm ? 2 * d : 0);
}

}  // namespace meshwright::models
