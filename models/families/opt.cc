// OPT's row; its formulas are models/opt.h.
#include "models/opt.h"

#include "models/families/families.h"

namespace meshwright::models {
namespace {

std::map<std::string, OptConfig> OptFlavors() {
  return {
      {"debug",
       {.vocabulary = 256, .positions = 256, .width = 64, .inner = 256, .layers = 2, .heads = 4}},
      {"125m", {}},
      {"350m",
       {.width = 1024,
        .inner = 4096,
        .layers = 24,
        .heads = 16,
        .embedding_width = 512,
        .norm_before = false}}};
}

Status ReadOpt(const HfConfig& json, OptConfig& config) {
  MW_TRY(json.RefuseOther("layerdrop", 0.0));
  MW_TRY(json.RefuseOther("layer_norm_elementwise_affine", true));
  bool no_final_norm = false;
  MW_TRY(json.Read("_remove_final_layer_norm", no_final_norm));
  config.final_norm = !no_final_norm;
  std::string activation = "relu";
  MW_TRY(json.Read("activation_function", activation));
  MW_ASSIGN_OR_RETURN(config.activation, ParseActivation("activation_function", activation));
  return OkStatus();
}

void WriteOpt(const OptConfig& config, HfWriter& json) {
  json.Set("activation_function", ActivationName(config.activation));
  json.Set("_remove_final_layer_norm", !config.final_norm);
  json.Set("word_embed_proj_dim", config.table_width());
}

FamilyRow<OptConfig> OptRow() {
  return {.name = "opt",
          .type = "opt",
          .architecture = "OPTForCausalLM",
          .flavors = OptFlavors,
          .defaults = [] { return OptConfig{.residual_dropout = 0.1}; },
          .keys = {{"vocab_size", &OptConfig::vocabulary, true},
                   {"max_position_embeddings", &OptConfig::positions, true},
                   {"hidden_size", &OptConfig::width, true},
                   {"ffn_dim", &OptConfig::inner, true},
                   {"num_hidden_layers", &OptConfig::layers, true},
                   {"num_attention_heads", &OptConfig::heads, true},
                   {"word_embed_proj_dim", &OptConfig::embedding_width},
                   {"dropout", &OptConfig::residual_dropout},
                   {"attention_dropout", &OptConfig::attention_dropout},
                   {"do_layer_norm_before", &OptConfig::norm_before},
                   {"enable_bias", &OptConfig::bias},
                   {"tie_word_embeddings", &OptConfig::tied}},
          .read = ReadOpt,
          .write = WriteOpt,
          .pads = true};
}

}  // namespace

Status ApplySpec(const std::string& family, const ModelSpec& spec, OptConfig& config) {
  MW_TRY(RefuseExperts(family, spec.mixture));
  MW_TRY(RefuseField(family, "n_kv_heads", spec.kv_heads.has_value()));
  MW_TRY(RefuseField(family, "rope_theta", spec.rope_base.has_value()));
  MW_TRY(RefuseField(family, "attention_window", spec.attention_window.value_or(0) != 0));
  OverrideSizes(spec, config);
  Override(config.inner, spec.inner);
  Override(config.positions, spec.positions);
  Override(config.residual_dropout, spec.dropout);
  Override(config.attention_dropout, spec.dropout);
  return OkStatus();
}

Model ModelOf(const std::string& family, const OptConfig& config) {
  Model model = BareModel(family, config, MakeOpt(config));
  model.max_sequence = config.positions;
  model.sizes.inner = config.inner;
  model.sizes.positions = config.positions;
  return model;
}

Family OptFamily() { return MakeFamily(OptRow()); }

}  // namespace meshwright::models
