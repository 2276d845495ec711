// What the families of the LLaMA line share: keys, forms and the way from a config to a model.
// Internal to models/.
//
// Thread rule: constant data and pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "models/family_row.h"
#include "models/llama.h"

namespace meshwright::models {

// vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads (these five are
// wanted) num_key_value_heads head_dim max_position_embeddings rms_norm_eps attention_dropout
// tie_word_embeddings, and `more`. kv_wanted: each family means another number by its absence.
std::vector<HfKey<LlamaConfig>> LlamaKeys(bool kv_wanted,
                                          std::vector<HfKey<LlamaConfig>> more = {});

// hidden_act, rope_theta, rope_scaling or rope_parameters. Errors: kUnimplemented, too, where
// another part of a head turns than config.rope_part says.
Status ReadLlamaForms(const HfConfig& json, LlamaConfig& config);
void WriteLlamaForms(const LlamaConfig& config, HfWriter& json);

// sliding_window, null for none; `usual` where it is absent, 0: none.
Status ReadSlidingWindow(const HfConfig& json, int64_t usual, LlamaConfig& config);
void WriteSlidingWindow(const LlamaConfig& config, HfWriter& json);
// Which layers have the window: "sliding_attention" or "full_attention" for each. Errors:
// kUnimplemented naming another kind, kInvalidArgument for another number of them.
Status ReadLayerTypes(const HfConfig& json, LlamaConfig& config);
void WriteLayerTypes(const LlamaConfig& config, HfWriter& json);
// Qwen's: use_sliding_window, max_window_layers, layer_types, sliding_window.
Status ReadQwenWindow(const HfConfig& json, LlamaConfig& config);
void WriteQwenWindow(const LlamaConfig& config, HfWriter& json);
// attention_bias: of q, k, v and o.
Status ReadAttentionBias(const HfConfig& json, LlamaConfig& config);

Status ApplySpec(const std::string& family, const ModelSpec& spec, LlamaConfig& config);
Model ModelOf(const std::string& family, const LlamaConfig& config);
// Of a model's sizes those that a job file can say.
ModelSpec SizesOf(const LlamaConfig& config);

// A small model that is like the family's.
LlamaConfig SmallLlama();
LlamaConfig SmallGemma2();
// What Gemma 2 has and Gemma 3 begins with.
LlamaConfig Gemma2Defaults();
Status ReadGemma2(const HfConfig& json, LlamaConfig& config);
void WriteGemma2(const LlamaConfig& config, HfWriter& json);
std::vector<HfKey<LlamaConfig>> Gemma2Keys();

FamilyRow<LlamaConfig> LlamaFamily();
FamilyRow<LlamaConfig> MistralFamily();
FamilyRow<LlamaConfig> Qwen2Family();
FamilyRow<LlamaConfig> Qwen3Family();
FamilyRow<LlamaConfig> Phi3Family();
FamilyRow<LlamaConfig> GemmaFamily();
FamilyRow<LlamaConfig> Gemma2Family();
FamilyRow<LlamaConfig> Gemma3Family();
FamilyRow<LlamaConfig> Olmo2Family();

// All of them.
std::vector<FamilyRow<LlamaConfig>> LlamaLine();

}  // namespace meshwright::models
