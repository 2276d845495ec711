// Mistral: LLaMA with a window in all layers, unless sliding_window is null.
#include "models/families/llama_line.h"

namespace meshwright::models {
namespace {

std::map<std::string, LlamaConfig> MistralFlavors() {
  LlamaConfig debug = SmallLlama();
  debug.attention_window = 32;
  return {{"debug", debug},
          {"7B",
           {.vocabulary = 32000,
            .width = 4096,
            .inner = 14336,
            .layers = 32,
            .heads = 32,
            .kv_heads = 8,
            .attention_window = 4096}}};
}

Status ReadMistral(const HfConfig& json, LlamaConfig& config) {
  constexpr int64_t kUsual = 4096;
  MW_TRY(ReadSlidingWindow(json, kUsual, config));
  return ReadLlamaForms(json, config);
}

void WriteMistral(const LlamaConfig& config, HfWriter& json) {
  WriteLlamaForms(config, json);
  WriteSlidingWindow(config, json);
}

}  // namespace

FamilyRow<LlamaConfig> MistralFamily() {
  return {.name = "mistral",
          .type = "mistral",
          .architecture = "MistralForCausalLM",
          .flavors = MistralFlavors,
          .defaults = [] { return LlamaConfig{.epsilon = 1e-6}; },
          .keys = LlamaKeys(true),
          .read = ReadMistral,
          .write = WriteMistral,
          .pads = true};
}

}  // namespace meshwright::models
