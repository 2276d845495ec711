// OLMo 2: norms behind attention and MLP only, and of all heads' queries and keys together.
#include "models/families/llama_line.h"

namespace meshwright::models {
namespace {

std::map<std::string, LlamaConfig> Olmo2Flavors() {
  LlamaConfig debug = SmallLlama();
  debug.head_norm = HeadNorm::kTogether;
  debug.norms = NormPlaces::kAfter;
  return {{"debug", debug},
          {"7B",
           {.vocabulary = 100352,
            .width = 4096,
            .inner = 11008,
            .layers = 32,
            .heads = 32,
            .epsilon = 1e-6,
            .rope_base = 500000,
            .head_norm = HeadNorm::kTogether,
            .norms = NormPlaces::kAfter}}};
}

Status ReadOlmo2(const HfConfig& json, LlamaConfig& config) {
  MW_TRY(json.RefuseKey("clip_qkv", "write null"));
  MW_TRY(ReadAttentionBias(json, config));
  return ReadLlamaForms(json, config);
}

}  // namespace

FamilyRow<LlamaConfig> Olmo2Family() {
  return {
      .name = "olmo2",
      .type = "olmo2",
      .architecture = "Olmo2ForCausalLM",
      .flavors = Olmo2Flavors,
      .defaults =
          [] { return LlamaConfig{.head_norm = HeadNorm::kTogether, .norms = NormPlaces::kAfter}; },
      .keys = LlamaKeys(false, {{"attention_bias", &LlamaConfig::attention_bias}}),
      .read = ReadOlmo2,
      .write = WriteLlamaForms,
      .pads = true};
}

}  // namespace meshwright::models
