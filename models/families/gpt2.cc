// GPT-2's row: keys, sizes and defaults; its formulas are models/gpt2.h.
#include <fmt/format.h>

#include "models/families/families.h"
#include "models/gpt2.h"

namespace meshwright::models {
namespace {

std::map<std::string, Gpt2Config> Gpt2Flavors() {
  return {
      {"debug", {.vocabulary = 256, .positions = 256, .width = 64, .layers = 2, .heads = 4}},
      {"124M", {.width = 768, .layers = 12, .heads = 12}},
      {"355M", {.width = 1024, .layers = 24, .heads = 16}},
      {"774M", {.width = 1280, .layers = 36, .heads = 20}},
      {"1.5B", {.width = 1600, .layers = 48, .heads = 25}},
  };
}

Gpt2Config Gpt2Defaults() {
  return {.embedding_dropout = 0.1, .residual_dropout = 0.1, .attention_dropout = 0.1};
}

Status ReadGpt2(const HfConfig& json, Gpt2Config& config) {
  MW_TRY(json.RefuseOther("scale_attn_weights", true));
  MW_TRY(json.RefuseOther("scale_attn_by_inverse_layer_idx", false));
  MW_TRY(json.RefuseOther("add_cross_attention", false));
  MW_ASSIGN_OR_RETURN(config.activation, ReadActivation(json, "activation_function", "gelu_new"));
  return OkStatus();
}

void WriteGpt2(const Gpt2Config& config, HfWriter& json) {
  json.Set("activation_function", ActivationName(config.activation));
}

FamilyRow<Gpt2Config> Gpt2Row() {
  return {.name = "gpt2",
          .type = "gpt2",
          .architecture = "GPT2LMHeadModel",
          .flavors = Gpt2Flavors,
          .defaults = Gpt2Defaults,
          .keys = {{"vocab_size", &Gpt2Config::vocabulary, true},
                   {"n_positions|n_ctx", &Gpt2Config::positions, true},
                   {"n_embd", &Gpt2Config::width, true},
                   {"n_layer", &Gpt2Config::layers, true},
                   {"n_head", &Gpt2Config::heads, true},
                   {"n_inner", &Gpt2Config::inner},
                   {"layer_norm_epsilon", &Gpt2Config::epsilon},
                   {"embd_pdrop", &Gpt2Config::embedding_dropout},
                   {"resid_pdrop", &Gpt2Config::residual_dropout},
                   {"attn_pdrop", &Gpt2Config::attention_dropout},
                   {"tie_word_embeddings", &Gpt2Config::tied}},
          .read = ReadGpt2,
          .write = WriteGpt2};
}

}  // namespace

Status ApplySpec(const std::string& family, const ModelSpec& spec, Gpt2Config& config) {
  return ApplyDense(family, spec, {}, config);
}

Model ModelOf(const std::string& family, const Gpt2Config& config) {
  return DenseModel(family, config, {}, MakeGpt2(config));
}

Family Gpt2Family() { return MakeFamily(Gpt2Row()); }

Result<Gpt2Config> Gpt2ConfigFromHf(const std::string& json_text) {
  MW_ASSIGN_OR_RETURN(const HfConfig json, HfConfig::Parse(json_text));
  MW_ASSIGN_OR_RETURN(Gpt2Config config, ReadConfig(Gpt2Row(), json));
  MW_TRY(Validate(config));
  return config;
}

}  // namespace meshwright::models
