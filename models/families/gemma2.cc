// Gemma 2: Gemma with norms around attention and MLP, caps of scores and logits, a scale of the
// scores by itself, and a window in every second layer.
#include "models/families/llama_line.h"

namespace meshwright::models {
namespace {

std::map<std::string, LlamaConfig> Gemma2Flavors() {
  LlamaConfig small = Gemma2Defaults();
  small.vocabulary = 256000;
  small.width = 2304;
  small.inner = 9216;
  small.layers = 26;
  small.heads = 8;
  small.kv_heads = 4;
  small.attention_window = 4096;
  return {{"debug", SmallGemma2()}, {"2B", small}};
}

// A cap that is null is none.
Status ReadCap(const HfConfig& json, const char* key, double& cap) {
  if (json.IsNull(key)) cap = 0;
  return json.Read(key, cap);
}

void WriteCap(const char* key, double cap, HfWriter& json) {
  if (cap > 0) {
    json.Set(key, cap);
  } else {
    json.SetNull(key);
  }
}

}  // namespace

LlamaConfig Gemma2Defaults() {
  return {.head_size = 256,
          .epsilon = 1e-6,
          .query_scalar = 256,
          .score_cap = 50,
          .logit_cap = 30,
          .windowed = {true, false},
          .norms = NormPlaces::kAround,
          .norm_from_one = true,
          .scaled_embedding = true,
          .activation = Activation::kGeluTanh,
          .tied = true};
}

LlamaConfig SmallGemma2() {
  LlamaConfig debug = Gemma2Defaults();
  debug.vocabulary = 256;
  debug.width = 64;
  debug.inner = 128;
  debug.layers = 2;
  debug.heads = 4;
  debug.kv_heads = 2;
  debug.head_size = 32;
  debug.query_scalar = 32;
  debug.attention_window = 32;
  return debug;
}

Status ReadGemma2(const HfConfig& json, LlamaConfig& config) {
  MW_TRY(json.RefuseOther("use_bidirectional_attention", false));
  MW_TRY(ReadAttentionBias(json, config));
  MW_TRY(ReadCap(json, "attn_logit_softcapping", config.score_cap));
  MW_TRY(ReadCap(json, "final_logit_softcapping", config.logit_cap));
  constexpr int64_t kUsual = 4096;
  MW_TRY(ReadSlidingWindow(json, kUsual, config));
  MW_TRY(ReadLayerTypes(json, config));
  MW_TRY(ReadLlamaForms(json, config));
  std::string activation = "gelu_pytorch_tanh";
  MW_TRY(json.Read("hidden_activation", activation));
  MW_ASSIGN_OR_RETURN(config.activation, ParseActivation("hidden_activation", activation));
  return OkStatus();
}

void WriteGemma2(const LlamaConfig& config, HfWriter& json) {
  WriteLlamaForms(config, json);
  json.Remove("hidden_act");
  json.Set("hidden_activation", ActivationName(config.activation));
  WriteCap("attn_logit_softcapping", config.score_cap, json);
  WriteCap("final_logit_softcapping", config.logit_cap, json);
  // transformers wants a whole number.
  json.Set("query_pre_attn_scalar", static_cast<int64_t>(config.query_scalar));
  WriteSlidingWindow(config, json);
  WriteLayerTypes(config, json);
}

std::vector<HfKey<LlamaConfig>> Gemma2Keys() {
  return LlamaKeys(true, {{"attention_bias", &LlamaConfig::attention_bias},
                          {"query_pre_attn_scalar", &LlamaConfig::query_scalar}});
}

FamilyRow<LlamaConfig> Gemma2Family() {
  return {.name = "gemma2",
          .type = "gemma2",
          .architecture = "Gemma2ForCausalLM",
          .flavors = Gemma2Flavors,
          .defaults = Gemma2Defaults,
          .keys = Gemma2Keys(),
          .read = ReadGemma2,
          .write = WriteGemma2,
          .pads = true};
}

}  // namespace meshwright::models
