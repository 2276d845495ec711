// Qwen3: norms of each head's queries and keys, heads of 128 whatever the width is.
#include "models/families/llama_line.h"

namespace meshwright::models {
namespace {

std::map<std::string, LlamaConfig> Qwen3Flavors() {
  LlamaConfig debug = SmallLlama();
  debug.head_size = 32;
  debug.head_norm = HeadNorm::kEach;
  debug.tied = true;
  return {{"debug", debug},
          {"0.6B",
           {.vocabulary = 151936,
            .width = 1024,
            .inner = 3072,
            .layers = 28,
            .heads = 16,
            .kv_heads = 8,
            .head_size = 128,
            .epsilon = 1e-6,
            .rope_base = 1e6,
            .head_norm = HeadNorm::kEach,
            .tied = true}}};
}

Status ReadQwen3(const HfConfig& json, LlamaConfig& config) {
  MW_TRY(ReadAttentionBias(json, config));
  MW_TRY(ReadQwenWindow(json, config));
  return ReadLlamaForms(json, config);
}

void WriteQwen3(const LlamaConfig& config, HfWriter& json) {
  WriteLlamaForms(config, json);
  WriteQwenWindow(config, json);
}

}  // namespace

FamilyRow<LlamaConfig> Qwen3Family() {
  return {.name = "qwen3",
          .type = "qwen3",
          .architecture = "Qwen3ForCausalLM",
          .flavors = Qwen3Flavors,
          .defaults =
              [] {
                return LlamaConfig{.head_size = 128, .epsilon = 1e-6, .head_norm = HeadNorm::kEach};
              },
          .keys = LlamaKeys(true, {{"attention_bias", &LlamaConfig::attention_bias}}),
          .read = ReadQwen3,
          .write = WriteQwen3,
          .pads = true};
}

}  // namespace meshwright::models
