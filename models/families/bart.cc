// BART's row; its formulas are models/bart.h.
#include "models/bart.h"

#include <fmt/format.h>

#include "models/families/families.h"

namespace meshwright::models {
namespace {

std::map<std::string, BartConfig> BartFlavors() {
  return {{"debug",
           {.vocabulary = 264,
            .positions = 256,
            .width = 64,
            .inner = 256,
            .decoder_inner = 256,
            .layers = 2,
            .decoder_layers = 2,
            .heads = 4,
            .decoder_heads = 4,
            .padding = 0,
            .start = 2}},
          {"base", {.dropout = 0.1, .attention_dropout = 0.1, .activation_dropout = 0.1}},
          {"large",
           {.width = 1024,
            .inner = 4096,
            .decoder_inner = 4096,
            .layers = 12,
            .decoder_layers = 12,
            .heads = 16,
            .decoder_heads = 16,
            .dropout = 0.1}}};
}

Status ReadBart(const HfConfig& json, BartConfig& config) {
  MW_TRY(json.RefuseOther("is_encoder_decoder", true));
  MW_TRY(json.RefuseOther("is_decoder", false));
  MW_TRY(json.RefuseOther("tie_word_embeddings", true));
  MW_TRY(json.RefuseOther("encoder_layerdrop", 0.0));
  MW_TRY(json.RefuseOther("decoder_layerdrop", 0.0));
  // Of older files.
  MW_TRY(json.RefuseOther("normalize_before", false));
  MW_TRY(json.RefuseOther("add_final_layer_norm", false));
  MW_ASSIGN_OR_RETURN(config.activation, ReadActivation(json, "activation_function", "gelu"));
  MW_TRY(json.Read("pad_token_id", config.padding));
  return json.Read("decoder_start_token_id", config.start);
}

void WriteBart(const BartConfig& config, HfWriter& json) {
  json.Set("activation_function", ActivationName(config.activation));
  json.Set("is_encoder_decoder", true);
  json.Set("tie_word_embeddings", true);
  json.Set("pad_token_id", config.padding);
  json.Set("decoder_start_token_id", config.start);
}

FamilyRow<BartConfig> BartRow() {
  return {.name = "bart",
          .type = "bart",
          .architecture = "BartForConditionalGeneration",
          .flavors = BartFlavors,
          .defaults = [] { return BartConfig{.dropout = 0.1}; },
          .keys = {{"vocab_size", &BartConfig::vocabulary, true},
                   {"max_position_embeddings", &BartConfig::positions, true},
                   {"d_model", &BartConfig::width, true},
                   {"encoder_layers", &BartConfig::layers, true},
                   {"encoder_ffn_dim", &BartConfig::inner, true},
                   {"encoder_attention_heads", &BartConfig::heads, true},
                   {"decoder_layers", &BartConfig::decoder_layers, true},
                   {"decoder_ffn_dim", &BartConfig::decoder_inner, true},
                   {"decoder_attention_heads", &BartConfig::decoder_heads, true},
                   {"dropout", &BartConfig::dropout},
                   {"attention_dropout", &BartConfig::attention_dropout},
                   {"activation_dropout", &BartConfig::activation_dropout},
                   {"scale_embedding", &BartConfig::scaled}},
          .read = ReadBart,
          .write = WriteBart,
          .pads = true};
}

}  // namespace

Status ApplySpec(const std::string& family, const ModelSpec& spec, BartConfig& config) {
  MW_TRY(RefuseExperts(family, spec.mixture));
  MW_TRY(RefuseField(family, "n_kv_heads", spec.kv_heads.has_value()));
  MW_TRY(RefuseField(family, "rope_theta", spec.rope_base.has_value()));
  MW_TRY(RefuseField(family, "attention_window", spec.attention_window.value_or(0) != 0));
  OverridePair(spec, config);
  // Of each side.
  Override(config.decoder_layers, spec.layers);
  Override(config.decoder_heads, spec.heads);
  Override(config.decoder_inner, spec.inner);
  Override(config.positions, spec.positions);
  return OkStatus();
}

Model ModelOf(const std::string& family, const BartConfig& config) {
  Model model = PairModelOf(family, config, MakeBart(config));
  model.max_sequence = config.positions;
  model.sizes.positions = config.positions;
  return model;
}

Family BartFamily() { return MakeFamily(BartRow()); }

}  // namespace meshwright::models
