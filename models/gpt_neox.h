// GPT-NeoX (Pythia): attention and MLP read the same x and are added to it together, unless
// parallel_residual is false; rotary positions turn the first part of each head.
//
// Params carry the names and, on export, the layout of Hugging Face's GPTNeoXForCausalLM, whose
// query_key_value has for each head its q, k and v. Layers 0..layers-1 are the blocks; the
// embedding belongs to layer 0, final norm, head and loss to the last.
//
// Thread rule: values. Source: Black et al. 2022.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "client/trainer.h"
#include "models/activation.h"
#include "models/rope.h"

namespace meshwright::models {

struct GptNeoxConfig {
  int64_t vocabulary = 50432;
  int64_t positions = 2048;  // longest sequence; 0: any
  int64_t width = 6144;
  int64_t inner = 24576;
  int64_t layers = 44;
  int64_t heads = 64;  // divides width
  double epsilon = 1e-5;
  double rope_base = 10000;
  double rope_part = 0.25;  // the share of a head that turns, from its first element on
  RopeScaling rope_scaling = {};
  double residual_dropout = 0;
  double attention_dropout = 0;
  bool attention_bias = true;
  bool parallel_residual = true;
  bool tied = false;
  Activation activation = Activation::kGeluErf;
  int64_t document_separator = -1;  // as Gpt2Config
  int64_t ignore_index = -100;

  int64_t head_size() const { return width / heads; }
  Rope rope() const {
    const double turned = rope_part * static_cast<double>(head_size());
    return {rope_base, static_cast<int64_t>(turned), rope_scaling};
  }
};

// Errors: kInvalidArgument naming the field.
Status Validate(const GptNeoxConfig& config);

// REQUIRES: Validate is OK.
client::TrainerFunctions MakeGptNeox(const GptNeoxConfig& config);

// Trained values by formula.
int64_t ParamCount(const GptNeoxConfig& config);

}  // namespace meshwright::models
