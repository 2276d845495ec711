// OLMoE: norms of all heads' queries and keys together; weights as the softmax has them.
#include "models/families/mixture_line.h"

namespace meshwright::models {
namespace {

using client::TopOfSoftmax;

// Norms of q and k over all heads; weights as the softmax has them.
std::map<std::string, MixtureConfig> OlmoeFlavors() {
  MixtureConfig debug = {
      .llama = SmallMixture(),
      .experts = {.experts = 8, .chosen = 2, .router = TopOfSoftmax{.normalised = false}},
      .names = GatedNames()};
  debug.llama.inner = 48;
  debug.llama.head_norm = HeadNorm::kTogether;
  MixtureConfig large = debug;
  large.llama = {.vocabulary = 50304,
                 .width = 2048,
                 .inner = 1024,
                 .layers = 16,
                 .heads = 16,
                 .head_norm = HeadNorm::kTogether};
  large.experts.experts = 64;
  large.experts.chosen = 8;
  return {{"debug", debug}, {"7B", large}};
}

MixtureConfig OlmoeDefaults() {
  return {.llama = {.head_norm = HeadNorm::kTogether},
          .experts = {.router = TopOfSoftmax{.normalised = false}},
          .names = GatedNames()};
}

Status ReadOlmoe(const HfConfig& json, MixtureConfig& config) {
  MW_TRY(json.RefuseKey("clip_qkv", "write null"));
  MW_TRY(ReadAttentionBias(json, config.llama));
  MW_TRY(ReadNormalised(json, config));
  MW_TRY(ReadRouterLoss(json, 0.01, config));
  return ReadLlamaForms(json, config.llama);
}

void WriteOlmoe(const MixtureConfig& config, HfWriter& json) {
  WriteLlamaForms(config.llama, json);
  WriteNormalised(config, json);
  WriteRouterLoss(config, json);
}

}  // namespace

FamilyRow<MixtureConfig> OlmoeFamily() {
  return {
      .name = "olmoe",
      .type = "olmoe",
      .architecture = "OlmoeForCausalLM",
      .flavors = OlmoeFlavors,
      .defaults = OlmoeDefaults,
      .keys = MixtureKeys(
          false, "intermediate_size",
          {{"num_experts|num_local_experts",
            [](MixtureConfig& config) -> int64_t& { return config.experts.experts; }, true},
           {"attention_bias",
            [](MixtureConfig& config) -> bool& { return config.llama.attention_bias; }, false}}),
      .read = ReadOlmoe,
      .write = WriteOlmoe,
      .says =
          [](const MixtureConfig& config) {
            return CanSay(config, OlmoeDefaults(), {.normalised = true});
          },
      .pads = true};
}

}  // namespace meshwright::models
