// GPT-NeoX's row; its formulas are models/gpt_neox.h.
#include "models/gpt_neox.h"

#include "models/families/families.h"

namespace meshwright::models {
namespace {

std::map<std::string, GptNeoxConfig> GptNeoxFlavors() {
  return {
      {"debug",
       {.vocabulary = 256, .positions = 256, .width = 64, .inner = 256, .layers = 2, .heads = 4}},
      {"20B", {}},
      {"pythia-160m",
       {.vocabulary = 50304, .width = 768, .inner = 3072, .layers = 12, .heads = 12}}};
}

Status ReadGptNeox(const HfConfig& json, GptNeoxConfig& config) {
  std::string activation = "gelu";
  MW_TRY(json.Read("hidden_act", activation));
  MW_ASSIGN_OR_RETURN(config.activation, ParseActivation("hidden_act", activation));
  const std::string key = json.Has("rope_scaling") ? "rope_scaling" : "rope_parameters";
  for (const std::string& name :
       {std::string("rotary_emb_base"), std::string("rope_theta"), key + ".rope_theta"}) {
    MW_TRY(json.Read(name, config.rope_base));
  }
  for (const std::string& name : {std::string("rotary_pct"), key + ".partial_rotary_factor"}) {
    MW_TRY(json.Read(name, config.rope_part));
  }
  MW_TRY(ReadRopeScaling(json, key, config.positions, config.rope_scaling));
  if (config.rope_scaling.kind == RopeKind::kDynamic) config.positions = 0;
  return OkStatus();
}

void WriteGptNeox(const GptNeoxConfig& config, HfWriter& json) {
  json.Set("hidden_act", ActivationName(config.activation));
  for (const char* old : {"rotary_emb_base", "rotary_pct", "rope_theta", "rope_scaling"}) {
    json.Remove(old);
  }
  WriteRope(config.rope(), "rope_parameters", json);
  json.Set("rope_parameters.partial_rotary_factor", config.rope_part);
  if (config.rope_scaling.kind == RopeKind::kDynamic) {
    json.Set("max_position_embeddings", config.rope_scaling.original);
  }
}

FamilyRow<GptNeoxConfig> GptNeoxRow() {
  return {.name = "gpt-neox",
          .type = "gpt_neox",
          .architecture = "GPTNeoXForCausalLM",
          .flavors = GptNeoxFlavors,
          .defaults = [] { return GptNeoxConfig(); },
          .keys = {{"vocab_size", &GptNeoxConfig::vocabulary, true},
                   {"hidden_size", &GptNeoxConfig::width, true},
                   {"intermediate_size", &GptNeoxConfig::inner, true},
                   {"num_hidden_layers", &GptNeoxConfig::layers, true},
                   {"num_attention_heads", &GptNeoxConfig::heads, true},
                   {"max_position_embeddings", &GptNeoxConfig::positions},
                   {"layer_norm_eps", &GptNeoxConfig::epsilon},
                   {"hidden_dropout", &GptNeoxConfig::residual_dropout},
                   {"attention_dropout", &GptNeoxConfig::attention_dropout},
                   {"attention_bias", &GptNeoxConfig::attention_bias},
                   {"use_parallel_residual", &GptNeoxConfig::parallel_residual},
                   {"tie_word_embeddings", &GptNeoxConfig::tied}},
          .read = ReadGptNeox,
          .write = WriteGptNeox};
}

}  // namespace

Status ApplySpec(const std::string& family, const ModelSpec& spec, GptNeoxConfig& config) {
  MW_TRY(RefuseExperts(family, spec.mixture));
  MW_TRY(RefuseField(family, "n_kv_heads", spec.kv_heads.has_value()));
  MW_TRY(RefuseField(family, "max_seq_len", spec.positions.has_value()));
  MW_TRY(RefuseField(family, "attention_window", spec.attention_window.value_or(0) != 0));
  OverrideSizes(spec, config);
  Override(config.inner, spec.inner);
  Override(config.residual_dropout, spec.dropout);
  Override(config.attention_dropout, spec.dropout);
  Override(config.rope_base, spec.rope_base);
  return OkStatus();
}

Model ModelOf(const std::string& family, const GptNeoxConfig& config) {
  Model model = BareModel(family, config, MakeGptNeox(config));
  model.max_sequence = config.positions;
  model.sizes.inner = config.inner;
  return model;
}

Family GptNeoxFamily() { return MakeFamily(GptNeoxRow()); }

}  // namespace meshwright::models
