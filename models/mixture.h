// LLaMA's blocks with a mixture of SwiGLU experts in the place of the MLP: Mixtral, Qwen2-MoE,
// Qwen3-MoE, OLMoE, DeepSeekMoE, DeepSeek-V3, gpt-oss. One model; what tells the families apart is
// in the config.
//
// Params carry the names of Hugging Face's models, up to the experts: the matrices of all experts
// of a layer are one tensor [experts, in, out], which files have as a tensor for each expert, or
// stacked (ExpertFiles). The losses of balance and z are added to the loss
// of the tokens, each times its coefficient; z is the mean over rows, the sum over layers.
//
// Thread rule: values. Sources: Jiang et al. 2024 (Mixtral), Yang et al. 2024 (Qwen2), Muennighoff
// et al. 2024 (OLMoE), Dai et al. 2024 (DeepSeekMoE).
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "client/balance.h"
#include "client/experts.h"
#include "models/llama.h"

namespace meshwright::models {

// How files have the matrices of a layer's experts.
enum class ExpertFiles : uint8_t {
  // "experts.E.gate_proj.weight" [out, in]. Read, too: "experts.gate_up_proj" [experts, 2 f, d]
  // with
  // the gate's rows in front, and "experts.down_proj" [experts, d, f], below `stored_layer`.
  kApart,
  // gpt-oss: "experts.gate_up_proj" [experts, d, 2 f], columns of gate and up in turn, and
  // "experts.down_proj" [experts, f, d]; their biases behind "_bias".
  kInTurn
};

// Where a family has its params, under "model.layers.N.".
struct MixtureNames {
  std::string layer = "block_sparse_moe";
  std::string gate = "w1";  // of SwiGLU
  std::string up = "w3";
  std::string down = "w2";
  std::string shared = "shared_expert";
  ExpertFiles files = ExpertFiles::kApart;
  std::string stored_layer = "mlp";
};

struct MixtureConfig {
  LlamaConfig llama = {};  // inner: of each expert
  client::ExpertOptions experts = {};
  // An MLP that all tokens pass beside their experts; its width, 0: none. Gated: each token weighs
  // it by a sigmoid (Qwen2-MoE).
  int64_t shared_inner = 0;
  bool shared_gated = false;
  // The first layers have an MLP of this width and no experts.
  int64_t dense_layers = 0;
  int64_t dense_inner = 0;
  // gpt-oss: each product of an expert has a bias, and what is between them is
  // (up + 1) gate sigmoid(slope gate), gate at most the limit and up within it. 0: SwiGLU.
  bool expert_bias = false;
  double glu_limit = 0;
  double glu_slope = 1.702;
  MixtureNames names = {};
  client::BalanceForm balance_form = client::BalanceForm::kSequence;
  double balance_loss = 0;  // the coefficients
  double z_loss = 0;

  int64_t expert_layers() const { return llama.layers - dense_layers; }
};

// Errors: kInvalidArgument naming the field.
Status Validate(const MixtureConfig& config);

client::TrainerFunctions MakeMixture(const MixtureConfig& config);

// Trained values by formula: all of them, and those that one token meets. Biases that only choose
// count, too.
int64_t ParamCount(const MixtureConfig& config);
int64_t ActiveParamCount(const MixtureConfig& config);

}  // namespace meshwright::models
