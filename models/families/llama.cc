// LLaMA 1 to 3. Biases where attention_bias and mlp_bias say so.
#include "models/families/llama_line.h"

namespace meshwright::models {
namespace {

std::map<std::string, LlamaConfig> LlamaFlavors() {
  return {{"debug", SmallLlama()},
          {"7B", {}},
          {"8B",
           {.vocabulary = 128256,
            .width = 4096,
            .inner = 14336,
            .layers = 32,
            .heads = 32,
            .kv_heads = 8,
            .rope_base = 500000}},
          {"70B",
           {.vocabulary = 128256,
            .width = 8192,
            .inner = 28672,
            .layers = 80,
            .heads = 64,
            .kv_heads = 8,
            .rope_base = 500000}}};
}

Status ReadLlama(const HfConfig& json, LlamaConfig& config) {
  MW_TRY(ReadAttentionBias(json, config));
  return ReadLlamaForms(json, config);
}

}  // namespace

FamilyRow<LlamaConfig> LlamaFamily() {
  return {.name = "llama",
          .type = "llama",
          .architecture = "LlamaForCausalLM",
          .flavors = LlamaFlavors,
          .defaults = [] { return LlamaConfig{.epsilon = 1e-6}; },
          .keys = LlamaKeys(false, {{"attention_bias", &LlamaConfig::attention_bias},
                                    {"mlp_bias", &LlamaConfig::mlp_bias}}),
          .read = ReadLlama,
          .write = WriteLlamaForms,
          .pads = true};
}

}  // namespace meshwright::models
