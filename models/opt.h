// OPT: a transformer with learned positions and ReLU; norms before attention and MLP, or, in one
// size, behind them; embeddings may be narrower than the blocks.
//
// Params carry the names and, on export, the layout of Hugging Face's OPTForCausalLM, whose table
// of positions has two rows in front that no place has. Layers 0..layers-1 are the blocks; the
// embedding belongs to layer 0, final norm, head and loss to the last.
//
// Thread rule: values. Source: Zhang et al. 2022.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "client/trainer.h"
#include "models/activation.h"

namespace meshwright::models {

struct OptConfig {
  int64_t vocabulary = 50272;
  int64_t positions = 2048;  // longest sequence
  int64_t width = 768;
  int64_t inner = 3072;
  int64_t layers = 12;
  int64_t heads = 12;           // divides width
  int64_t embedding_width = 0;  // 0: width
  double residual_dropout = 0;
  double attention_dropout = 0;
  double epsilon = 1e-5;
  bool norm_before = true;
  bool final_norm = true;  // where norms are before
  bool bias = true;        // of attention and MLP
  bool tied = true;
  Activation activation = Activation::kRelu;
  int64_t document_separator = -1;  // as Gpt2Config
  int64_t ignore_index = -100;

  int64_t head_size() const { return width / heads; }
  int64_t table_width() const { return embedding_width > 0 ? embedding_width : width; }
};

// Errors: kInvalidArgument naming the field.
Status Validate(const OptConfig& config);

// REQUIRES: Validate is OK.
client::TrainerFunctions MakeOpt(const OptConfig& config);

// Trained values by formula.
int64_t ParamCount(const OptConfig& config);

}  // namespace meshwright::models
