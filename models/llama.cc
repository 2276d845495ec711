#include "models/llama.h"

#include <fmt/format.h>

#include <algorithm>
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

class Llama {
 public:
  // mlp: in the place of its own; may be empty.
  Llama(Builder& builder, const LlamaConfig& config, LlamaMlp mlp = {})
      : b_(builder), config_(config), mlp_(std::move(mlp)) {}

  // tokens i32[b, s] -> logits [b, s, v]
  ValueId Logits(ValueId tokens) {
    b_.SetLayer(0);
    const int64_t sequence = client::PositionCount(b_, tokens);
    if (config_.positions > 0 && sequence > config_.positions) {
      b_.Fail(InvalidArgument(fmt::format("sequence {} is longer than the model's {} positions",
                                          sequence, config_.positions)));
    }
    if (config_.document_separator >= 0) {
      segments_ = b_.Segments(tokens, config_.document_separator);
    }
    const Dims table = {config_.vocabulary, config_.width};
    const ValueId embedding = b_.Param("model.embed_tokens.weight", table);
    ValueId x = b_.Lookup(embedding, tokens);
    for (int64_t i = 0; i < config_.layers; ++i) {
      b_.SetLayer(static_cast<int>(i));
      x = Block(x, i);
    }
    x = b_.RmsNorm(client::Wanted(b_, x), "model.norm", config_.epsilon);
    const ValueId head = config_.tied ? embedding : b_.Param("lm_head.weight", table);
    return b_.Einsum("bsd,vd->bsv", x, head);
  }

 private:
  ValueId Block(ValueId x, int64_t index) {
    const std::string name = fmt::format("model.layers.{}", index);
    const ValueId normed = b_.RmsNorm(x, name + ".input_layernorm", config_.epsilon);
    x = b_.AddTo(x, Attention(normed, name + ".self_attn", index));
    const ValueId middle = b_.RmsNorm(x, name + ".post_attention_layernorm", config_.epsilon);
    return b_.AddTo(x, Mlp(middle, {index, name}));
  }

  ValueId Attention(ValueId x, const std::string& name, int64_t index) {
    if (config_.latent.any()) {
      return LatentAttention(b_, x, name,
                             {config_.heads, config_.latent, config_.epsilon, config_.rope_base,
                              config_.attention_dropout, ResidualStd(config_), segments_});
    }
    const int64_t d = config_.width;
    const int64_t h = config_.heads;
    const int64_t e = config_.head_width();
    const int64_t g = config_.kv_head_count();
    const ValueId q =
        b_.Rotary(Normed(Heads(x, name + ".q_proj", h), name + ".q_norm"), config_.rope_base);
    const ValueId k =
        b_.Rotary(Normed(Heads(x, name + ".k_proj", g), name + ".k_norm"), config_.rope_base);
    const ValueId v = Heads(x, name + ".v_proj", g);
    const ValueId out = b_.Param(
        name + ".o_proj.weight", {h, e, d},
        {.std_dev = ResidualStd(config_), .export_perm = {2, 0, 1}, .export_shape = {d, h * e}});
    client::AttentionOptions options;
    options.dropout = {config_.attention_dropout, name + ".dropout"};
    options.segments = segments_;
    options.window = index % config_.window_period == 0 ? config_.attention_window : 0;
    if (config_.attention_sinks) {
      options.sinks = b_.Param(name + ".sinks", {h}, {.init = "zeros", .decay = 0});
    }
    const ValueId o = b_.Einsum("bshe,hed->bsd", b_.Attention(q, k, v, options), out);
    if (!config_.output_bias) return o;
    return b_.AddTo(o, b_.Param(name + ".o_proj.bias", {d}, {.init = "zeros", .decay = 0}));
  }

  // x [b, s, d] -> [b, s, heads, e]
  ValueId Heads(ValueId x, const std::string& name, int64_t heads) {
    const int64_t e = config_.head_width();
    const ValueId weight =
        b_.Param(name + ".weight", {config_.width, heads, e},
                 {.export_perm = {1, 2, 0}, .export_shape = {heads * e, config_.width}});
    const ValueId y = b_.Einsum("bsd,dhe->bshe", x, weight);
    if (!config_.attention_bias) return y;
    const ParamOptions bias = {.init = "zeros", .decay = 0, .export_shape = {heads * e}};
    return b_.AddTo(y, b_.Param(name + ".bias", {heads, e}, bias));
  }

  // Heads [b, s, h, e].
  ValueId Normed(ValueId x, const std::string& name) {
    if (config_.head_norm == HeadNorm::kNone) return x;
    if (config_.head_norm == HeadNorm::kEach) return b_.RmsNorm(x, name, config_.epsilon);
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
    return mlp_ ? mlp_(x, block) : SwiGlu(b_, config_, x, block.name + ".mlp", config_.inner);
  }

  Builder& b_;
  const LlamaConfig& config_;
  const LlamaMlp mlp_;
  ValueId segments_;  // invalid: a row is one document
};

Status RefuseUnsupported(const HfConfig& json) {
  for (const char* key : {"attention_bias", "mlp_bias"}) MW_TRY(json.RefuseOther(key, false));
  for (const char* key : {"pretraining_tp", "partial_rotary_factor"}) {
    MW_TRY(json.RefuseOther(key, 1.0));
  }
  MW_TRY(json.RefuseKey("quantization_config", kQuantizationFix));
  if (json.Has("rope_scaling") && !json.Has("rope_scaling.rope_type") &&
      !json.Has("rope_scaling.type")) {
    return Unimplemented(
        "config.json: rope_scaling without rope_type is not supported; write null");
  }
  for (const char* key :
       {"rope_scaling.rope_type", "rope_scaling.type", "rope_parameters.rope_type"}) {
    std::string type = "default";
    MW_TRY(json.Read(key, type));
    if (type != "default") {
      return Unimplemented(
          fmt::format("config.json: {} = '{}' is not supported; only default", key, type));
    }
  }
  std::string activation = "silu";
  MW_TRY(json.Read("hidden_act", activation));
  if (activation != "silu") {
    return Unimplemented(
        fmt::format("config.json: hidden_act '{}' is not supported; only silu", activation));
  }
  return OkStatus();
}

// Which of a Qwen2's layers have its window.
struct WindowLayers {
  int64_t count = 0;
  int64_t first = 0;
};

// As transformers has it: those from max_window_layers on, or those that layer_types names.
Result<WindowLayers> QwenWindowLayers(const HfConfig& json, int64_t layers) {
  constexpr char kSliding[] = "sliding_attention";
  bool used = false;
  MW_TRY(json.Read("use_sliding_window", used));
  if (!used) return WindowLayers{};
  int64_t first = 28;  // the default of Hugging Face's Qwen2Config
  MW_TRY(json.Read("max_window_layers", first));
  std::vector<std::string> kinds;
  MW_TRY(json.Read("layer_types", kinds));
  if (kinds.empty()) {
    first = std::clamp<int64_t>(first, 0, layers);
    return WindowLayers{layers - first, first};
  }
  const auto at = std::find(kinds.begin(), kinds.end(), kSliding);
  return WindowLayers{std::count(kinds.begin(), kinds.end(), kSliding), at - kinds.begin()};
}

// Mistral has a window unless its key says null, Qwen2 where use_sliding_window is true.
Status ReadWindow(const HfConfig& json, const std::string& type, LlamaConfig& config) {
  if (type == "llama") return OkStatus();
  constexpr int64_t kUsual = 4096;  // the default of both families
  WindowLayers windows{config.layers, 0};
  if (type == "qwen2") {
    MW_ASSIGN_OR_RETURN(windows, QwenWindowLayers(json, config.layers));
  }
  if (windows.count == 0 || json.IsNull("sliding_window")) return OkStatus();
  int64_t window = kUsual;
  MW_TRY(json.Read("sliding_window", window));
  MW_TRY(CheckPositive({{"sliding_window", window}}));
  if (windows.count != config.layers) {
    return Unimplemented(fmt::format(
        "config.json: {} of {} layers, from layer {} on, have a window of {} tokens; either all of "
        "a model's layers have one here or none: write use_sliding_window = false for none, or "
        "max_window_layers = 0 for all",
        windows.count, config.layers, windows.first, window));
  }
  config.attention_window = window;
  return OkStatus();
}

}  // namespace

Result<LlamaConfig> LlamaConfigFromHf(const std::string& json_text) {
  MW_ASSIGN_OR_RETURN(const HfConfig json, HfConfig::Parse(json_text));
  MW_TRY(json.Require({"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                       "num_attention_heads"}));
  MW_TRY(RefuseUnsupported(json));
  std::string type = "llama";
  MW_TRY(json.Read("model_type", type));
  // Where it is absent, each family means another number.
  if (type != "llama") MW_TRY(json.Require({"num_key_value_heads"}));
  LlamaConfig config;
  config.attention_bias = type == "qwen2";
  config.epsilon = 1e-6;  // the default of Hugging Face's LlamaConfig
  MW_TRY(json.Read("vocab_size", config.vocabulary));
  MW_TRY(json.Read("hidden_size", config.width));
  MW_TRY(json.Read("intermediate_size", config.inner));
  MW_TRY(json.Read("num_hidden_layers", config.layers));
  MW_TRY(json.Read("num_attention_heads", config.heads));
  MW_TRY(json.Read("num_key_value_heads", config.kv_heads));
  MW_TRY(json.Read("head_dim", config.head_size));
  if (json.Has("max_position_embeddings")) {
    MW_TRY(json.Read("max_position_embeddings", config.positions));
    MW_TRY(CheckPositive({{"max_position_embeddings", config.positions}}));
  }
  MW_TRY(json.Read("rms_norm_eps", config.epsilon));
  MW_TRY(json.Read("rope_theta", config.rope_base));
  // transformers reads the older name first.
  MW_TRY(json.Read("rope_parameters.rope_theta", config.rope_base));
  MW_TRY(json.Read("rope_scaling.rope_theta", config.rope_base));
  MW_TRY(json.Read("attention_dropout", config.attention_dropout));
  MW_TRY(json.Read("tie_word_embeddings", config.tied));
  MW_TRY(ReadWindow(json, type, config));
  MW_TRY(Validate(config));
  return config;
}

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
  if (config.head_size == 0 && config.width % config.heads != 0) {
    return InvalidArgument(
        fmt::format("dim {} is not a multiple of n_heads {}; choose n_heads that divides it",
                    config.width, config.heads));
  }
  if (config.heads % config.kv_head_count() != 0) {
    return InvalidArgument(fmt::format("n_heads {} is not a multiple of n_kv_heads {}",
                                       config.heads, config.kv_head_count()));
  }
  if (config.head_width() % 2 != 0) {
    return InvalidArgument(
        fmt::format("head size {} is odd; rotary positions need pairs", config.head_width()));
  }
  if (config.latent.any()) MW_TRY(Validate(config.latent));
  if (config.latent.any() && config.attention_window > 0) {
    return InvalidArgument("attention_window: latent attention has none; remove it");
  }
  if (config.window_period < 1) {
    return InvalidArgument(fmt::format("window_period is {}; at least 1", config.window_period));
  }
  if (config.latent.any() && (config.attention_sinks || config.output_bias)) {
    return InvalidArgument("latent attention has no sinks and no biases");
  }
  if (config.attention_window < 0) {
    return InvalidArgument(
        fmt::format("attention_window is {}; it must be 0 (none) or the tokens "
                    "that a token sees",
                    config.attention_window));
  }
  MW_TRY(CheckAboveZero("norm_eps", config.epsilon, 1));
  MW_TRY(CheckAboveZero("rope_theta", config.rope_base, 1e12));
  return CheckRate("attention dropout", config.attention_dropout);
}

double ResidualStd(const LlamaConfig& config) {
  return 0.02 / std::sqrt(2.0 * static_cast<double>(config.layers));
}

ValueId SwiGlu(Builder& builder, const LlamaConfig& config, ValueId x, const std::string& name,
               int64_t inner) {
  const Dims into = {config.width, inner};
  const ParamOptions turned = {.export_perm = {1, 0}};
  const ValueId gate =
      builder.Einsum("bsd,df->bsf", x, builder.Param(name + ".gate_proj.weight", into, turned));
  const ValueId up =
      builder.Einsum("bsd,df->bsf", x, builder.Param(name + ".up_proj.weight", into, turned));
  const ValueId down = builder.Param(name + ".down_proj.weight", {inner, config.width},
                                     {.std_dev = ResidualStd(config), .export_perm = {1, 0}});
  return builder.Einsum("bsf,fd->bsd", builder.MulBy(builder.Silu(gate), up), down);
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
  return table * (config.tied ? 1 : 2) +
         config.layers * (attention + 3 * d * config.inner + 2 * d) + d;
}

}  // namespace meshwright::models
