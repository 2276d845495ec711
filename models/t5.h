// T5: an encoder that reads a source, and a decoder that writes a target and looks at what the
// encoder made of the source. RMS norms stand before attention and MLP, nothing has a bias, and
// scores have one for how far a key is from a query, of one table for all layers of a side.
//
// Params carry the names and, on export, the layout of Hugging Face's T5ForConditionalGeneration.
// Layers 0..layers-1 are the encoder's, those behind them the decoder's: a pipeline is two chains
// of stages, and the encoder's output goes to every stage of the decoder. The encoder's lookup is
// of layer 0, the decoder's of its first layer, head and loss of the last.
//
// A batch is "source" i32[b, s] and "target" i32[b, t], with padding behind. What is written is the
// target; the decoder reads it one place later, behind `start`. Padding is seen by nobody and is no
// label.
//
// Thread rule: values. Source: Raffel et al. 2020; gated MLPs: Shazeer 2020.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "client/trainer.h"
#include "models/activation.h"

namespace meshwright::models {

struct T5Config {
  int64_t vocabulary = 32128;
  int64_t width = 512;
  int64_t inner = 2048;
  int64_t head_size = 64;  // heads need not add up to the width
  int64_t layers = 6;
  int64_t decoder_layers = 0;  // 0: as layers
  int64_t heads = 8;
  int64_t buckets = 32;  // of distances between query and key
  int64_t max_distance = 128;
  double dropout = 0;
  double epsilon = 1e-6;
  Activation activation = Activation::kRelu;
  bool gated = false;
  bool tied = true;  // the head is the embedding, and what it reads is scaled down
  int64_t padding = 0;
  int64_t start = 0;                // what the decoder reads first
  int64_t target_tokens = 0;        // of a row; 0: as the source has
  double hidden_share = 0;          // of texts that pairs are made of; 0: the data are pairs
  double mean_span = 3;             // tokens of what is hidden at once
  int64_t document_separator = -1;  // none: a row is a pair
  int64_t ignore_index = -100;

  int64_t all_layers() const { return layers + (decoder_layers > 0 ? decoder_layers : layers); }
  int64_t target_of(int64_t source_tokens) const {
    return target_tokens > 0 ? target_tokens : source_tokens;
  }
};

// Errors: kInvalidArgument naming the field.
Status Validate(const T5Config& config);

// REQUIRES: Validate is OK.
client::TrainerFunctions MakeT5(const T5Config& config);

// Trained values by formula.
int64_t ParamCount(const T5Config& config);

// The bucket of a key that is `distance` behind its query (before it: negative). Near ones have one
// each, the others share those that are left by the logarithm, in f32 as transformers has it. An
// encoder has half of them for each direction; a decoder sees nothing behind.
int64_t T5Bucket(int64_t distance, bool both_ways, int64_t buckets, int64_t max_distance);

}  // namespace meshwright::models
