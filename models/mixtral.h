// Mixtral: LLaMA's blocks with a mixture of SwiGLU experts in the place of the MLP.
//
// The router's and the experts' params carry the names of Hugging Face's MixtralForCausalLM up to
// "block_sparse_moe"; the matrices of all experts of a layer are one tensor [experts, in, out].
// Losses of balance are added to the loss of the tokens: coefficient x the mean over rows, the sum
// over layers.
//
// Thread rule: values. Source: Jiang et al. 2024.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "client/experts.h"
#include "models/llama.h"

namespace meshwright::models {

struct MixtralConfig {
  LlamaConfig llama = {};  // inner: of each expert
  client::ExpertOptions experts = {};
  double balance_loss = 0;  // the coefficients
  double z_loss = 0;
};

// Errors: kInvalidArgument naming the field.
Status Validate(const MixtralConfig& config);

client::TrainerFunctions MakeMixtral(const MixtralConfig& config);

// Trained values by formula: all of them, and those that one token meets.
int64_t ParamCount(const MixtralConfig& config);
int64_t ActiveParamCount(const MixtralConfig& config);

}  // namespace meshwright::models
