// GPT-J's row; its formulas are models/gptj.h.
#include "models/gptj.h"

#include "models/families/families.h"

namespace meshwright::models {
namespace {

std::map<std::string, GptjConfig> GptjFlavors() {
  return {
      {"debug",
       {.vocabulary = 256, .positions = 256, .width = 64, .layers = 2, .heads = 4, .turned = 8}},
      {"6B", {}}};
}

Status ReadGptj(const HfConfig& json, GptjConfig& config) {
  if (json.IsNull("rotary_dim")) {
    return Unimplemented("config.json: rotary_dim null is not supported; write a number");
  }
  std::string activation = "gelu_new";
  MW_TRY(json.Read("activation_function", activation));
  MW_ASSIGN_OR_RETURN(config.activation, ParseActivation("activation_function", activation));
  return OkStatus();
}

void WriteGptj(const GptjConfig& config, HfWriter& json) {
  json.Set("activation_function", ActivationName(config.activation));
}

FamilyRow<GptjConfig> GptjRow() {
  return {.name = "gptj",
          .type = "gptj",
          .architecture = "GPTJForCausalLM",
          .flavors = GptjFlavors,
          .defaults = [] { return GptjConfig(); },
          .keys = {{"vocab_size", &GptjConfig::vocabulary, true},
                   {"n_positions", &GptjConfig::positions, true},
                   {"n_embd", &GptjConfig::width, true},
                   {"n_layer", &GptjConfig::layers, true},
                   {"n_head", &GptjConfig::heads, true},
                   {"n_inner", &GptjConfig::inner},
                   {"rotary_dim", &GptjConfig::turned},
                   {"layer_norm_epsilon", &GptjConfig::epsilon},
                   {"embd_pdrop", &GptjConfig::embedding_dropout},
                   {"resid_pdrop", &GptjConfig::residual_dropout},
                   {"attn_pdrop", &GptjConfig::attention_dropout},
                   {"tie_word_embeddings", &GptjConfig::tied}},
          .read = ReadGptj,
          .write = WriteGptj};
}

}  // namespace

Status ApplySpec(const std::string& family, const ModelSpec& spec, GptjConfig& config) {
  MW_TRY(RefuseExperts(family, spec.mixture));
  MW_TRY(RefuseField(family, "n_kv_heads", spec.kv_heads.has_value()));
  MW_TRY(RefuseField(family, "rope_theta", spec.rope_base.has_value()));
  MW_TRY(RefuseField(family, "attention_window", spec.attention_window.value_or(0) != 0));
  OverrideSizes(spec, config);
  Override(config.inner, spec.inner);
  Override(config.positions, spec.positions);
  Override(config.embedding_dropout, spec.dropout);
  Override(config.residual_dropout, spec.dropout);
  Override(config.attention_dropout, spec.dropout);
  return OkStatus();
}

Model ModelOf(const std::string& family, const GptjConfig& config) {
  Model model = BareModel(family, config, MakeGptj(config));
  model.max_sequence = config.positions;
  model.sizes.inner = config.inner_width();
  model.sizes.positions = config.positions;
  return model;
}

Family GptjFamily() { return MakeFamily(GptjRow()); }

}  // namespace meshwright::models
