// LLaMA and its line: pre-norm transformers with RMS norms, rotary positions, grouped-query
// attention and a gated MLP: Mistral, Qwen2 and 3, Phi-3, Gemma 1 to 3, OLMo 2. One model; what
// tells the families apart is in the config, and each family's own values in models/families/.
//
// Params carry the names and, on export, the layout of Hugging Face's LlamaForCausalLM: nn.Linear
// stores [out, in], here weights are [in, out] with heads as dims of their own (q [d, h, e], k and
// v [d, g, e], o [h, e, d]). Rotary is the half-split layout of Hugging Face, so weights load
// without permuting rows. Layers 0..layers-1 are the blocks; the embedding belongs to layer 0,
// final norm, head and loss to the last.
//
// Thread rule: values. Source: Touvron et al. 2023; grouped queries: Ainslie et al. 2023.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/trainer.h"
#include "models/activation.h"
#include "models/latent_attention.h"
#include "models/rope.h"

namespace meshwright::models {

// RMS norms of queries and keys, before positions.
enum class HeadNorm : uint8_t {
  kNone,
  kEach,     // of each head by itself; one weight for all heads (Qwen3)
  kTogether  // of all heads of a token (OLMoE, OLMo 2)
};

// Where a block norms what attention and MLP read, and what they say before it is added.
enum class NormPlaces : uint8_t {
  kBefore,
  kAfter,  // OLMo 2
  kAround  // Gemma 2 and 3
};

struct LlamaConfig {
  int64_t vocabulary = 32000;
  int64_t width = 4096;   // d
  int64_t inner = 11008;  // f
  int64_t layers = 32;
  int64_t heads = 32;     // h
  int64_t kv_heads = 0;   // g, divides heads; 0: heads
  int64_t head_size = 0;  // e, even; 0: width / heads
  int64_t positions = 0;  // longest sequence that the model was made for; 0: any
  double epsilon = 1e-5;
  double rope_base = 10000;
  double rope_part = 1;  // the share of a head that turns, from its first element on
  RopeScaling rope_scaling = {};
  bool rope_neighbours = false;  // Rope::neighbours
  double window_rope_base = 0;   // of layers with a window, not scaled; 0: as the others
  double attention_dropout = 0;  // of the probabilities
  bool attention_bias = false;   // of q, k and v
  bool output_bias = false;      // of what heads say together
  bool attention_sinks = false;  // client::AttentionOptions::sinks (gpt-oss)
  HeadNorm head_norm = HeadNorm::kNone;
  double query_scalar = 0;       // scores are divided by its root; 0: the head size
  double score_cap = 0;          // client::AttentionOptions::score_cap
  double logit_cap = 0;          // the same for the logits of tokens
  int64_t attention_window = 0;  // keys that a token sees: itself and those before it; 0: all
  // Which layers have the window: from the first on, and again from its start.
  std::vector<bool> windowed = {true};
  NormPlaces norms = NormPlaces::kBefore;
  bool norm_from_one = false;     // weights of norms are what is added to 1 (Gemma)
  bool scaled_embedding = false;  // by the root of the width (Gemma)
  Activation activation = Activation::kSilu;
  bool mlp_bias = false;
  bool fused = false;               // files have q, k and v as one tensor, gate and up, too (Phi-3)
  LatentHeads latent = {};          // in the place of kv_heads, head_size, biases and norms
  bool tied = false;                // the head is the token embedding
  int64_t document_separator = -1;  // as Gpt2Config
  int64_t ignore_index = -100;

  int64_t kv_head_count() const { return kv_heads > 0 ? kv_heads : heads; }
  int64_t head_width() const { return head_size > 0 ? head_size : width / heads; }
  bool has_window(int64_t layer) const {
    return attention_window > 0 && windowed[static_cast<size_t>(layer) % windowed.size()];
  }
};

// Rotary positions of a layer.
Rope RopeOf(const LlamaConfig& config, int64_t layer);

// Of the text of a config.json whose model_type is one of the line's (models/families/); absent:
// "llama". Errors: kInvalidArgument (JSON, an absent size, type or value of a key), kUnimplemented
// for what the formulas here do not have.
Result<LlamaConfig> LlamaConfigFromHf(const std::string& json_text);

// Errors: kInvalidArgument naming the field.
Status Validate(const LlamaConfig& config);

// The three functions. REQUIRES: Validate is OK; a sequence above `positions` is an error of the
// graph.
client::TrainerFunctions MakeLlama(const LlamaConfig& config);

struct LlamaBlock {
  int64_t index;
  std::string name;
};
// What a block does with x [b, s, d] in the place of its MLP.
using LlamaMlp = std::function<ValueId(ValueId x, const LlamaBlock& block)>;
// tokens i32[b, s] -> logits [b, s, v]; mlp: empty: LLaMA's own.
ValueId LlamaLogits(client::Builder& builder, const LlamaConfig& config, ValueId tokens,
                    LlamaMlp mlp = {});
// An MLP of LLaMA's: x [b, s, d] -> [b, s, d] by way of `inner`.
ValueId GatedMlp(client::Builder& builder, const LlamaConfig& config, ValueId x,
                 const std::string& name, int64_t inner);
// Of weights that write to the residual stream.
double ResidualStd(const LlamaConfig& config);

// Trained values by formula.
int64_t ParamCount(const LlamaConfig& config);

}  // namespace meshwright::models
