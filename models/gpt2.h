// GPT-2: pre-norm transformer with learned positions, fused QKV and a GELU MLP.
//
// Params carry the names and, on export, the layout of Hugging Face's GPT2LMHeadModel. There c_attn
// is [d, 3d] with the thirds q, k, v; here its logical shape is [d, 3, heads, head_size], so that a
// split over heads cuts each third alike. Layers 0..layers-1 are the blocks; the embedding belongs
// to layer 0, final norm, head and loss to the last.
//
// Thread rule: values. Source: Radford et al. 2019 (model, initialisation 0.02, residual
// projections / sqrt(2 layers)).
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "client/trainer.h"
#include "models/activation.h"

namespace meshwright::models {

struct Gpt2Config {
  int64_t vocabulary = 50257;
  int64_t positions = 1024;  // longest sequence
  int64_t width = 768;       // d
  int64_t layers = 12;
  int64_t heads = 12;  // divides width
  int64_t inner = 0;   // of the MLP; 0: 4 * width
  double epsilon = 1e-5;
  double embedding_dropout = 0;
  double residual_dropout = 0;
  double attention_dropout = 0;  // of the probabilities
  bool tied = true;              // the head is the token embedding
  Activation activation = Activation::kGeluTanh;
  // Token that ends a document: tokens attend to their own document only; -1: to their row.
  int64_t document_separator = -1;
  int64_t ignore_index = -100;

  int64_t inner_width() const { return inner > 0 ? inner : 4 * width; }
  int64_t head_size() const { return width / heads; }
};

// Keys of a Hugging Face config.json: vocab_size n_positions n_embd n_layer n_head n_inner
// layer_norm_epsilon embd_pdrop resid_pdrop attn_pdrop tie_word_embeddings activation_function.
// The five sizes (n_ctx may stand for n_positions) are wanted; other absent keys keep Hugging
// Face's defaults, so dropouts are 0.1. Errors: kInvalidArgument (JSON, an absent size, type or
// value of a key), kUnimplemented for an unknown activation, another scale of the attention, cross
// attention and quantised weights.
Result<Gpt2Config> Gpt2ConfigFromHf(const std::string& json_text);

// Errors: kInvalidArgument naming the field.
Status Validate(const Gpt2Config& config);

// The three functions. REQUIRES: Validate is OK; a sequence above `positions` is an error of the
// graph.
client::TrainerFunctions MakeGpt2(const Gpt2Config& config);

// Trained values by formula: wte + wpe + layers * (attention + MLP + norms) + final norm (+ untied
// head).
int64_t ParamCount(const Gpt2Config& config);

}  // namespace meshwright::models
