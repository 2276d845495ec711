// T5's row, of the first version and 1.1; its formulas are models/t5.h.
#include "models/t5.h"

#include <fmt/format.h>

#include "models/families/families.h"

namespace meshwright::models {
namespace {

std::map<std::string, T5Config> T5Flavors() {
  return {
      {"debug",
       {.vocabulary = 264, .width = 64, .inner = 256, .head_size = 16, .layers = 2, .heads = 4}},
      {"small", {.dropout = 0.1}},
      {"base", {.width = 768, .inner = 3072, .layers = 12, .heads = 12, .dropout = 0.1}},
      {"large", {.width = 1024, .inner = 4096, .layers = 24, .heads = 16, .dropout = 0.1}},
      {"v1.1-small",
       {.width = 512,
        .inner = 1024,
        .layers = 8,
        .heads = 6,
        .dropout = 0.1,
        .activation = Activation::kGeluTanh,
        .gated = true,
        .tied = false}},
      {"v1.1-base",
       {.width = 768,
        .inner = 2048,
        .layers = 12,
        .heads = 12,
        .dropout = 0.1,
        .activation = Activation::kGeluTanh,
        .gated = true,
        .tied = false}}};
}

constexpr char kGated[] = "gated-";

// "relu", "gated-gelu": there gelu is its tanh form.
Status ReadMlp(const HfConfig& json, T5Config& config) {
  std::string form = "relu";
  MW_TRY(json.Read("feed_forward_proj", form));
  config.gated = form.starts_with(kGated);
  if (form == "gated-gelu") form = "gated-gelu_new";
  const std::string activation = config.gated ? form.substr(sizeof(kGated) - 1) : form;
  MW_ASSIGN_OR_RETURN(config.activation, ParseActivation("feed_forward_proj", activation));
  return OkStatus();
}

Status ReadT5(const HfConfig& json, T5Config& config) {
  MW_TRY(json.RefuseOther("is_encoder_decoder", true));
  MW_TRY(json.RefuseOther("is_decoder", false));
  MW_TRY(ReadMlp(json, config));
  // transformers 5 writes every head as tied, and says of one that is not that nothing is scaled.
  bool tied = true;
  bool scaled = true;
  MW_TRY(json.Read("tie_word_embeddings", tied));
  MW_TRY(json.Read("scale_decoder_outputs", scaled));
  config.tied = tied && scaled;
  MW_TRY(json.Read("pad_token_id", config.padding));
  config.start = config.padding;
  return json.Read("decoder_start_token_id", config.start);
}

void WriteT5(const T5Config& config, HfWriter& json) {
  const bool old_name = config.gated && config.activation == Activation::kGeluTanh;
  json.Set("feed_forward_proj", (std::string(config.gated ? kGated : "") +
                                 (old_name ? "gelu" : ActivationName(config.activation)))
                                    .c_str());
  json.Remove("dense_act_fn");
  json.Remove("is_gated_act");
  json.Set("is_encoder_decoder", true);
  json.Set("tie_word_embeddings", config.tied);
  json.Set("scale_decoder_outputs", config.tied);
  json.Set("pad_token_id", config.padding);
  json.Set("decoder_start_token_id", config.start);
}

FamilyRow<T5Config> T5Row() {
  return {.name = "t5",
          .type = "t5",
          .architecture = "T5ForConditionalGeneration",
          .flavors = T5Flavors,
          .defaults = [] { return T5Config{.dropout = 0.1}; },
          .keys = {{"vocab_size", &T5Config::vocabulary, true},
                   {"d_model", &T5Config::width, true},
                   {"d_kv", &T5Config::head_size, true},
                   {"d_ff", &T5Config::inner, true},
                   {"num_layers", &T5Config::layers, true},
                   {"num_heads", &T5Config::heads, true},
                   {"num_decoder_layers", &T5Config::decoder_layers},
                   {"relative_attention_num_buckets", &T5Config::buckets},
                   {"relative_attention_max_distance", &T5Config::max_distance},
                   {"dropout_rate", &T5Config::dropout},
                   {"layer_norm_epsilon", &T5Config::epsilon}},
          .read = ReadT5,
          .write = WriteT5};
}

}  // namespace

Status ApplySpec(const std::string& family, const ModelSpec& spec, T5Config& config) {
  MW_TRY(RefuseExperts(family, spec.mixture));
  MW_TRY(RefuseField(family, "n_kv_heads", spec.kv_heads.has_value()));
  MW_TRY(RefuseField(family, "rope_theta", spec.rope_base.has_value()));
  MW_TRY(RefuseField(family, "max_seq_len", spec.positions.has_value()));
  MW_TRY(RefuseField(family, "attention_window", spec.attention_window.value_or(0) != 0));
  OverridePair(spec, config);
  // Of each side.
  if (spec.layers) config.decoder_layers = 0;
  return OkStatus();
}

Model ModelOf(const std::string& family, const T5Config& config) {
  return PairModelOf(family, config, MakeT5(config));
}

Family T5Family() { return MakeFamily(T5Row()); }

}  // namespace meshwright::models
