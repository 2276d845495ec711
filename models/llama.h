// LLaMA: pre-norm transformer with RMS norms, rotary positions, grouped-query attention and a
// SwiGLU MLP.
//
// Params carry the names and, on export, the layout of Hugging Face's LlamaForCausalLM: nn.Linear
// stores [out, in], here weights are [in, out] with heads as dims of their own (q [d, h, e], k and
// v [d, g, e], o [h, e, d]). Rotary is the half-split layout of Hugging Face, so weights load
// without permuting rows. Kin of LLaMA have biases of q, k and v (Qwen2), or norms of q and k
// (Qwen3, OLMoE). Layers 0..layers-1 are the blocks; the embedding belongs to layer 0,
// final norm, head and loss to the last.
//
// Thread rule: values. Source: Touvron et al. 2023; grouped queries: Ainslie et al. 2023.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "client/trainer.h"
#include "models/latent_attention.h"

namespace meshwright::models {

// RMS norms of queries and keys, before positions.
enum class HeadNorm : uint8_t {
  kNone,
  kEach,     // of each head by itself; one weight for all heads (Qwen3)
  kTogether  // of all heads of a token (OLMoE)
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
  double attention_dropout = 0;  // of the probabilities
  bool attention_bias = false;   // of q, k and v
  bool output_bias = false;      // of what heads say together
  bool attention_sinks = false;  // client::AttentionOptions::sinks (gpt-oss)
  HeadNorm head_norm = HeadNorm::kNone;
  int64_t attention_window = 0;     // keys that a token sees: itself and those before it; 0: all
  int64_t window_period = 1;        // of so many layers the first has the window; 1: all have it
  LatentHeads latent = {};          // in the place of kv_heads, head_size, biases and norms
  bool tied = false;                // the head is the token embedding
  int64_t document_separator = -1;  // as Gpt2Config
  int64_t ignore_index = -100;

  int64_t kv_head_count() const { return kv_heads > 0 ? kv_heads : heads; }
  int64_t head_width() const { return head_size > 0 ? head_size : width / heads; }
};

// Keys of a Hugging Face config.json: vocab_size hidden_size intermediate_size num_hidden_layers
// num_attention_heads (these five are wanted) num_key_value_heads head_dim max_position_embeddings
// rms_norm_eps rope_theta (or rope_parameters.rope_theta) attention_dropout tie_word_embeddings. Of
// model_type "mistral" and "qwen2" num_key_value_heads is wanted, too; sliding_window becomes
// attention_window where the family uses it (use_sliding_window, max_window_layers, layer_types).
// Errors: kInvalidArgument (JSON, an absent size, type or value of a key), kUnimplemented for
// biases that the family does not have, windows of some layers only, scaled or partial rope,
// pretraining_tp, quantised weights or another activation.
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
ValueId SwiGlu(client::Builder& builder, const LlamaConfig& config, ValueId x,
               const std::string& name, int64_t inner);
// Of weights that write to the residual stream.
double ResidualStd(const LlamaConfig& config);

// Trained values by formula.
int64_t ParamCount(const LlamaConfig& config);

}  // namespace meshwright::models
