// Qwen2 and 2.5: biases of q, k and v; a window in some layers where use_sliding_window is true.
#include "models/families/llama_line.h"

namespace meshwright::models {
namespace {

std::map<std::string, LlamaConfig> Qwen2Flavors() {
  LlamaConfig debug = SmallLlama();
  debug.attention_bias = true;
  debug.tied = true;
  return {{"debug", debug},
          {"0.5B",
           {.vocabulary = 151936,
            .width = 896,
            .inner = 4864,
            .layers = 24,
            .heads = 14,
            .kv_heads = 2,
            .epsilon = 1e-6,
            .rope_base = 1e6,
            .attention_bias = true,
            .tied = true}}};
}

Status ReadQwen2(const HfConfig& json, LlamaConfig& config) {
  MW_TRY(json.RefuseOther("attention_bias", true));
  MW_TRY(ReadQwenWindow(json, config));
  return ReadLlamaForms(json, config);
}

void WriteQwen2(const LlamaConfig& config, HfWriter& json) {
  WriteLlamaForms(config, json);
  WriteQwenWindow(config, json);
}

}  // namespace

FamilyRow<LlamaConfig> Qwen2Family() {
  return {.name = "qwen2",
          .type = "qwen2",
          .architecture = "Qwen2ForCausalLM",
          .flavors = Qwen2Flavors,
          .defaults = [] { return LlamaConfig{.epsilon = 1e-6, .attention_bias = true}; },
          .keys = LlamaKeys(true),
          .read = ReadQwen2,
          .write = WriteQwen2,
          .pads = true};
}

}  // namespace meshwright::models
