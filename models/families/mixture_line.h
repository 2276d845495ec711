// What the families of mixtures share: keys, forms and the way from a config to a model. Internal
// to models/.
//
// Thread rule: constant data and pure functions.
#pragma once

#include <string>
#include <vector>

#include "models/families/llama_line.h"
#include "models/family_row.h"
#include "models/mixture.h"

namespace meshwright::models {

// LlamaKeys and num_experts_per_tok. The width of an expert is under `inner`; where that is not
// intermediate_size, this is the width of the layers without experts.
std::vector<HfKey<MixtureConfig>> MixtureKeys(bool kv_wanted, const char* inner,
                                              std::vector<HfKey<MixtureConfig>> more = {});
// The same keys of a mixture's blocks.
std::vector<HfKey<MixtureConfig>> OfBlocks(std::vector<HfKey<LlamaConfig>> keys);

// output_router_logits, router_aux_loss_coef: Mixtral's loss of balance, which transformers adds
// where the first says so.
Status ReadRouterLoss(const HfConfig& json, double usual, MixtureConfig& config);
void WriteRouterLoss(const MixtureConfig& config, HfWriter& json);

// norm_topk_prob of routers that have it.
Status ReadNormalised(const HfConfig& json, MixtureConfig& config);
void WriteNormalised(const MixtureConfig& config, HfWriter& json);

// What a family's config.json can say beside the rest.
struct MixtureWords {
  bool normalised = false;  // norm_topk_prob
  bool shared = false;      // an MLP for all tokens
  bool dense = false;       // layers without experts
};
// Whether the settings of a job file are none that a config.json has no words for.
bool CanSay(const MixtureConfig& config, const MixtureConfig& usual, const MixtureWords& words);

Status ApplySpec(const std::string& family, const ModelSpec& spec, MixtureConfig& config);
Model ModelOf(const std::string& family, const MixtureConfig& config);

// "mlp", with "gate_proj", "up_proj" and "down_proj".
MixtureNames GatedNames();
// A small model's blocks.
LlamaConfig SmallMixture();

FamilyRow<MixtureConfig> DeepSeekMoeFamily();
FamilyRow<MixtureConfig> DeepSeekV3Family();
FamilyRow<MixtureConfig> GptOssFamily();
FamilyRow<MixtureConfig> MixtralFamily();
FamilyRow<MixtureConfig> OlmoeFamily();
FamilyRow<MixtureConfig> Qwen2MoeFamily();
FamilyRow<MixtureConfig> Qwen3MoeFamily();

}  // namespace meshwright::models
