// GPT-J: attention and MLP read one norm of x and are added to it together; rotary positions turn
// the first elements of each head, in neighbouring pairs.
//
// Params carry the names and, on export, the layout of Hugging Face's GPTJForCausalLM. Layers
// 0..layers-1 are the blocks; the embedding belongs to layer 0, final norm, head and loss to the
// last.
//
// Thread rule: values. Source: Wang and Komatsuzaki 2021.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "client/trainer.h"
#include "models/activation.h"

namespace meshwright::models {

struct GptjConfig {
  int64_t vocabulary = 50400;
  int64_t positions = 2048;  // longest sequence
  int64_t width = 4096;
  int64_t inner = 0;  // 0: 4 * width
  int64_t layers = 28;
  int64_t heads = 16;   // divides width
  int64_t turned = 64;  // elements of a head; even
  double epsilon = 1e-5;
  double embedding_dropout = 0;
  double residual_dropout = 0;
  double attention_dropout = 0;
  bool tied = false;
  Activation activation = Activation::kGeluTanh;
  int64_t document_separator = -1;  // as Gpt2Config
  int64_t ignore_index = -100;

  int64_t head_size() const { return width / heads; }
  int64_t inner_width() const { return inner > 0 ? inner : 4 * width; }
};

// Errors: kInvalidArgument naming the field.
Status Validate(const GptjConfig& config);

// REQUIRES: Validate is OK.
client::TrainerFunctions MakeGptj(const GptjConfig& config);

// Trained values by formula.
int64_t ParamCount(const GptjConfig& config);

}  // namespace meshwright::models
