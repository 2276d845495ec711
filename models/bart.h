// BART: an encoder that reads a source, and a decoder that writes a target and looks at what the
// encoder made of the source. Norms stand behind attention and MLP, places are learned, everything
// has a bias, and the head is the embedding.
//
// Params carry the names and, on export, the layout of Hugging Face's BartForConditionalGeneration;
// its `final_logits_bias`, which is no weight and zero, is not read. Layers are numbered, and a
// batch is, as of T5 (models/t5.h).
//
// Thread rule: values. Source: Lewis et al. 2019.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "client/trainer.h"
#include "models/activation.h"

namespace meshwright::models {

struct BartConfig {
  int64_t vocabulary = 50265;
  int64_t positions = 1024;
  int64_t width = 768;
  int64_t inner = 3072;
  int64_t decoder_inner = 3072;
  int64_t layers = 6;
  int64_t decoder_layers = 6;
  int64_t heads = 12;
  int64_t decoder_heads = 12;
  double dropout = 0;
  double attention_dropout = 0;
  double activation_dropout = 0;
  double epsilon = 1e-5;
  Activation activation = Activation::kGeluErf;
  bool scaled = false;  // embeddings are multiplied by the root of the width
  bool tied = true;
  int64_t padding = 1;
  int64_t start = 2;                // what the decoder reads first
  int64_t target_tokens = 0;        // of a row; 0: as the source has
  double hidden_share = 0;          // of texts that pairs are made of; 0: the data are pairs
  double mean_span = 3;             // tokens of what is hidden at once
  int64_t document_separator = -1;  // none: a row is a pair
  int64_t ignore_index = -100;

  int64_t all_layers() const { return layers + decoder_layers; }
  int64_t target_of(int64_t source_tokens) const {
    return target_tokens > 0 ? target_tokens : source_tokens;
  }
};

// Errors: kInvalidArgument naming the field; kUnimplemented: a head of its own.
Status Validate(const BartConfig& config);

// REQUIRES: Validate is OK.
client::TrainerFunctions MakeBart(const BartConfig& config);

// Trained values by formula.
int64_t ParamCount(const BartConfig& config);

}  // namespace meshwright::models
