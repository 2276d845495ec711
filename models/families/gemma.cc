// Gemma 1: norms by 1 + weight, embeddings times the root of the width, gated by the tanh form of
// GELU, heads of 256, tied.
#include "models/families/llama_line.h"

namespace meshwright::models {
namespace {

LlamaConfig GemmaDefaults() {
  return {.head_size = 256,
          .epsilon = 1e-6,
          .norm_from_one = true,
          .scaled_embedding = true,
          .activation = Activation::kGeluTanh,
          .tied = true};
}

std::map<std::string, LlamaConfig> GemmaFlavors() {
  LlamaConfig debug = GemmaDefaults();
  debug.vocabulary = 256;
  debug.width = 64;
  debug.inner = 128;
  debug.layers = 2;
  debug.heads = 4;
  debug.kv_heads = 1;
  debug.head_size = 32;
  LlamaConfig small = GemmaDefaults();
  small.vocabulary = 256000;
  small.width = 2048;
  small.inner = 16384;
  small.layers = 18;
  small.heads = 8;
  small.kv_heads = 1;
  return {{"debug", debug}, {"2B", small}};
}

Status ReadGemma(const HfConfig& json, LlamaConfig& config) {
  MW_TRY(json.RefuseOther("use_bidirectional_attention", false));
  MW_TRY(ReadAttentionBias(json, config));
  MW_TRY(ReadLlamaForms(json, config));
  // The first files say "gelu" and mean this.
  if (config.activation == Activation::kGeluErf) config.activation = Activation::kGeluTanh;
  return OkStatus();
}

}  // namespace

FamilyRow<LlamaConfig> GemmaFamily() {
  return {.name = "gemma",
          .type = "gemma",
          .architecture = "GemmaForCausalLM",
          .flavors = GemmaFlavors,
          .defaults = GemmaDefaults,
          .keys = LlamaKeys(true, {{"attention_bias", &LlamaConfig::attention_bias}}),
          .read = ReadGemma,
          .write = WriteLlamaForms,
          .pads = true};
}

}  // namespace meshwright::models
