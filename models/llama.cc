#include "models/llama.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>
#include <vector>

#include "client/paged_layers.h"
#include "models/hf_config.h"
#include "models/language_model.h"

namespace meshwright::models {
namespace {

using client::Batch;
using client::Builder;
using client::Dims;
using client::ParamOptions;

// A vector of a model of the LLaMA line: norms of x's last dim.
ValueId NormOf(Builder& builder, const LlamaConfig& config, ValueId x, const std::string& name) {
  if (!config.norm_from_one) return builder.RmsNorm(x, name, config.epsilon);
  const Dims dims = builder.dims(x);
  if (dims.empty()) return x;  // after an error
  const ValueId added = builder.Param(name + ".weight", {dims.back()}, {.init = "zeros"});
  return builder.AddOne(ir::Op::kRmsNorm, {x, builder.Shift(added, 1)}, {{"eps", config.epsilon}});
}

class Llama {
 public:
  // mlp: in the place of its own; may be empty.
  Llama(Builder& builder, const LlamaConfig& config, LlamaMlp mlp = {})
      : b_(builder), config_(config), mlp_(std::move(mlp)) {}

  // tokens i32[b, s] -> logits [b, s, v]
  ValueId Logits(ValueId tokens) {
    b_.SetLayer(0);
    CheckSequence(b_, tokens, config_.positions);
    segments_ = client::DocumentsOf(b_, tokens, config_.document_separator);
    const Dims table = {config_.vocabulary, config_.width};
    const ValueId embedding = b_.Param("model.embed_tokens.weight", table);
    ValueId x = b_.Lookup(embedding, tokens);
    if (config_.scaled_embedding) x = b_.Scale(x, std::sqrt(static_cast<double>(config_.width)));
    for (int64_t i = 0; i < config_.layers; ++i) {
      b_.SetLayer(static_cast<int>(i));
      x = Block(x, i);
    }
    x = Norm(client::Wanted(b_, x), "model.norm");
    const ValueId head = config_.tied ? embedding : b_.Param("lm_head.weight", table);
    const ValueId logits = b_.Einsum("bsd,vd->bsv", x, head);
    const double cap = config_.logit_cap;
    return cap > 0 ? b_.Scale(b_.Tanh(b_.Scale(logits, 1 / cap)), cap) : logits;
  }

 private:
  ValueId Norm(ValueId x, const std::string& name) { return NormOf(b_, config_, x, name); }

  ValueId Block(ValueId x, int64_t index) {
    const std::string name = fmt::format("model.layers.{}", index);
    const bool before = config_.norms != NormPlaces::kAfter;
    const bool after = config_.norms != NormPlaces::kBefore;
    const char* middle = after ? ".pre_feedforward_layernorm" : ".post_attention_layernorm";
    ValueId said =
        Attention(before ? Norm(x, name + ".input_layernorm") : x, name + ".self_attn", index);
    if (after) said = Norm(said, name + ".post_attention_layernorm");
    x = b_.AddTo(x, said);
    said = Mlp(before ? Norm(x, name + middle) : x, {index, name});
    if (after) said = Norm(said, name + ".post_feedforward_layernorm");
    return b_.AddTo(x, said);
  }

  ValueId Attention(ValueId x, const std::string& name, int64_t index) {
    if (config_.latent.any()) {
      return LatentAttention(b_, x, name,
                             {config_.heads, config_.latent, RopeOf(config_, index),
                              config_.attention_dropout, ResidualStd(config_), segments_});
    }
    const int64_t d = config_.width;
    const int64_t h = config_.heads;
    const int64_t e = config_.head_width();
    const int64_t g = config_.kv_head_count();
    const Rope rope = RopeOf(config_, index);
    const ValueId q = Turn(b_, Normed(Heads(x, name, {"q", h, 0}), name + ".q_norm"), rope);
    const ValueId k = Turn(b_, Normed(Heads(x, name, {"k", g, h}), name + ".k_norm"), rope);
    const ValueId v = Heads(x, name, {"v", g, h + g});
    const ValueId out = b_.Param(
        name + ".o_proj.weight", {h, e, d},
        {.std_dev = ResidualStd(config_), .export_perm = {2, 0, 1}, .export_shape = {d, h * e}});
    client::AttentionOptions options;
    options.dropout = {config_.attention_dropout, name + ".dropout"};
    options.segments = segments_;
    options.window = config_.has_window(index) ? config_.attention_window : 0;
    options.scale = config_.query_scalar > 0 ? 1 / std::sqrt(config_.query_scalar) : 0;
    options.score_cap = config_.score_cap;
    if (config_.attention_sinks) {
      options.sinks = b_.Param(name + ".sinks", {h}, {.init = "zeros", .decay = 0});
    }
    const ValueId o = b_.Einsum("bshe,hed->bsd", b_.Attention(q, k, v, options), out);
    if (!config_.output_bias) return o;
    return b_.AddTo(o, b_.Param(name + ".o_proj.bias", {d}, {.init = "zeros", .decay = 0}));
  }

  struct Projection {
    const char* letter;  // q, k or v
    int64_t heads;
    int64_t first;  // of all heads where files have them as one tensor
  };

  // x [b, s, d] -> [b, s, heads, e]
  ValueId Heads(ValueId x, const std::string& layer, const Projection& of) {
    const int64_t e = config_.head_width();
    const std::string name = fmt::format("{}.{}_proj", layer, of.letter);
    ParamOptions options = {.export_perm = {1, 2, 0},
                            .export_shape = {of.heads * e, config_.width}};
    if (config_.fused) {
      options.export_name = layer + ".qkv_proj.weight";
      options.export_rows = (config_.heads + 2 * config_.kv_head_count()) * e;
      options.export_row = of.first * e;
    }
    const ValueId weight = b_.Param(name + ".weight", {config_.width, of.heads, e}, options);
    const ValueId y = b_.Einsum("bsd,dhe->bshe", x, weight);
    if (!config_.attention_bias) return y;
    const ParamOptions bias = {.init = "zeros", .decay = 0, .export_shape = {of.heads * e}};
    return b_.AddTo(y, b_.Param(name + ".bias", {of.heads, e}, bias));
  }

  // Heads [b, s, h, e].
  ValueId Normed(ValueId x, const std::string& name) {
    if (config_.head_norm == HeadNorm::kNone) return x;
    if (config_.head_norm == HeadNorm::kEach) return Norm(x, name);
    const Dims heads = b_.dims(x);
    if (heads.size() != 4) return x;  // after an error
    // By formula: heads stay apart, so that devices may have some of them and share one sum.
    const ValueId square = b_.ReduceMean(b_.Square(x), {2, 3}, true);
    const ValueId unit = b_.MulBy(x, b_.Rsqrt(b_.Shift(square, config_.epsilon)));
    const ParamOptions options = {
        .init = "ones", .decay = 0, .export_shape = {heads[2] * heads[3]}};
    return b_.MulBy(unit, b_.Param(name + ".weight", {heads[2], heads[3]}, options));
  }

  ValueId Mlp(ValueId x, const LlamaBlock& block) {
    return mlp_ ? mlp_(x, block) : GatedMlp(b_, config_, x, block.name + ".mlp", config_.inner);
  }

  Builder& b_;
  const LlamaConfig& config_;
  const LlamaMlp mlp_;
  ValueId segments_;  // invalid: a row is one document
};

}  // namespace

Rope RopeOf(const LlamaConfig& config, int64_t layer) {
  const double part = config.rope_part * static_cast<double>(config.head_width());
  const int64_t turned = config.latent.any() ? config.latent.turned : static_cast<int64_t>(part);
  Rope rope{config.rope_base, turned, config.rope_scaling, config.rope_neighbours};
  if (config.window_rope_base > 0 && config.has_window(layer)) {
    rope.base = config.window_rope_base;
    rope.scaling = {};
  }
  return rope;
}

namespace {

Status CheckCaps(const LlamaConfig& config) {
  for (const auto& [name, value] : {std::pair("query_pre_attn_scalar", config.query_scalar),
                                    std::pair("attn_logit_softcapping", config.score_cap),
                                    std::pair("final_logit_softcapping", config.logit_cap)}) {
    if (value >= 0 && value <= 1e6) continue;
    return InvalidArgument(
        fmt::format("model: {} is {}; 0 (none), or a number up to 1e6", name, value));
  }
  if (config.score_cap > 0 && config.attention_sinks) {
    return InvalidArgument("model: attention with sinks has no cap of its scores");
  }
  if (config.fused && (config.attention_bias || config.mlp_bias)) {
    return InvalidArgument("model: weights that files have as one tensor have no biases");
  }
  return OkStatus();
}

}  // namespace

Status Validate(const LlamaConfig& config) {
  MW_TRY(CheckPositive({{"vocab_size", config.vocabulary},
                        {"dim", config.width},
                        {"inner width", config.inner},
                        {"n_layers", config.layers},
                        {"n_heads", config.heads},
                        {"n_kv_heads", config.kv_head_count()},
                        {"head size", config.head_width()}}));
  MW_TRY(CheckLayers(config.layers));
  MW_TRY(CheckSeparator(config.document_separator, config.vocabulary));
  const bool latent = config.latent.any();
  if (config.head_size == 0 && !latent) MW_TRY(CheckHeads(config.width, config.heads));
  if (config.heads % config.kv_head_count() != 0) {
    return InvalidArgument(fmt::format("n_heads {} is not a multiple of n_kv_heads {}",
                                       config.heads, config.kv_head_count()));
  }
  if (config.head_width() % 2 != 0 && !latent) {
    return InvalidArgument(
        fmt::format("head size {} is odd; rotary positions need pairs", config.head_width()));
  }
  if (!(config.rope_part > 0 && config.rope_part <= 1)) {
    return InvalidArgument(fmt::format(
        "model: partial_rotary_factor is {}; it must be above 0 and at most 1", config.rope_part));
  }
  if (latent) MW_TRY(Validate(config.latent));
  if (latent && config.attention_window > 0) {
    return InvalidArgument("attention_window: latent attention has none; remove it");
  }
  if (config.windowed.empty()) {
    return InvalidArgument("model: no layer says whether it has a window");
  }
  if (latent && (config.attention_sinks || config.output_bias)) {
    return InvalidArgument("latent attention has no sinks and no biases");
  }
  if (config.attention_window < 0) {
    return InvalidArgument(
        fmt::format("attention_window is {}; it must be 0 (none) or the tokens "
                    "that a token sees",
                    config.attention_window));
  }
  MW_TRY(CheckAboveZero("norm_eps", config.epsilon, 1));
  MW_TRY(CheckCaps(config));
  // Of a layer of each kind.
  for (size_t i = 0; i < config.windowed.size(); ++i) {
    MW_TRY(Validate(RopeOf(config, static_cast<int64_t>(i))));
  }
  return CheckRate("attention dropout", config.attention_dropout);
}

double ResidualStd(const LlamaConfig& config) {
  return 0.02 / std::sqrt(2.0 * static_cast<double>(config.layers));
}

ValueId GatedMlp(Builder& builder, const LlamaConfig& config, ValueId x, const std::string& name,
                 int64_t inner) {
  // `first`: of the rows where files have both as one tensor.
  const auto into = [&](const char* part, int64_t first) {
    ParamOptions options = {.export_perm = {1, 0}};
    if (config.fused) {
      options.export_name = name + ".gate_up_proj.weight";
      options.export_rows = 2 * inner;
      options.export_row = first;
    }
    const std::string of = fmt::format("{}.{}_proj", name, part);
    const ValueId weight = builder.Param(of + ".weight", {config.width, inner}, options);
    const ValueId y = builder.Einsum("bsd,df->bsf", x, weight);
    if (!config.mlp_bias) return y;
    return builder.AddTo(y, builder.Param(of + ".bias", {inner}, {.init = "zeros"}));
  };
  const ValueId gate = into("gate", 0);
  const ValueId up = into("up", inner);
  const ValueId down = builder.Param(name + ".down_proj.weight", {inner, config.width},
                                     {.std_dev = ResidualStd(config), .export_perm = {1, 0}});
  const ValueId y = builder.Einsum(
      "bsf,fd->bsd", builder.MulBy(Activate(builder, gate, config.activation), up), down);
  if (!config.mlp_bias) return y;
  return builder.AddTo(y,
                       builder.Param(name + ".down_proj.bias", {config.width}, {.init = "zeros"}));
}

ValueId LlamaLogits(Builder& builder, const LlamaConfig& config, ValueId tokens, LlamaMlp mlp) {
  return Llama(builder, config, std::move(mlp)).Logits(tokens);
}

client::TrainerFunctions MakeLlama(const LlamaConfig& config) {
  return LanguageModel<Llama>(config);
}

int64_t ParamCount(const LlamaConfig& config) {
  const int64_t d = config.width;
  const int64_t e = config.head_width();
  const int64_t q = config.heads * e;
  const int64_t k = config.kv_head_count() * e;
  const int64_t biases = (config.attention_bias ? q + 2 * k : 0) + (config.output_bias ? d : 0) +
                         (config.attention_sinks ? config.heads : 0);
  const int64_t norms = config.head_norm == HeadNorm::kEach       ? 2 * e
                        : config.head_norm == HeadNorm::kTogether ? q + k
                                                                  : 0;
  const int64_t attention = config.latent.any() ? ParamCount(config.latent, d, config.heads)
                                                : 2 * d * q + 2 * d * k + biases + norms;
  const int64_t table = config.vocabulary * d;
  const int64_t mlp = 3 * d * config.inner + (config.mlp_bias ? 2 * config.inner + d : 0);
  const int64_t around = (config.norms == NormPlaces::kAround ? 4 : 2) * d;
  return table * (config.tied ? 1 : 2) + config.layers * (attention + mlp + around) + d;
}

}  // namespace meshwright::models
