// Mixtral: LLaMA's blocks with experts, of which the router's best have weights that add up to one.
#include "models/families/mixture_line.h"

namespace meshwright::models {
namespace {

std::map<std::string, MixtureConfig> MixtralFlavors() {
  return {{"debug", {.llama = SmallMixture(), .experts = {.experts = 4, .chosen = 2}}},
          {"8x7B",
           {.llama = {.vocabulary = 32000,
                      .width = 4096,
                      .inner = 14336,
                      .layers = 32,
                      .heads = 32,
                      .kv_heads = 8,
                      .rope_base = 1e6},
            .experts = {.experts = 8, .chosen = 2}}},
          {"8x22B",
           {.llama = {.vocabulary = 32768,
                      .width = 6144,
                      .inner = 16384,
                      .layers = 56,
                      .heads = 48,
                      .kv_heads = 8,
                      .rope_base = 1e6},
            .experts = {.experts = 8, .chosen = 2}}}};
}

MixtureConfig MixtralDefaults() { return {.llama = {.rope_base = 1e6}}; }

Status ReadMixtral(const HfConfig& json, MixtureConfig& config) {
  MW_TRY(json.RefuseOther("router_jitter_noise", 0.0));
  MW_TRY(ReadSlidingWindow(json, 0, config.llama));
  MW_TRY(ReadRouterLoss(json, 0.001, config));
  return ReadLlamaForms(json, config.llama);
}

void WriteMixtral(const MixtureConfig& config, HfWriter& json) {
  WriteLlamaForms(config.llama, json);
  WriteSlidingWindow(config.llama, json);
  WriteRouterLoss(config, json);
}

}  // namespace

FamilyRow<MixtureConfig> MixtralFamily() {
  return {.name = "mixtral",
          .type = "mixtral",
          .architecture = "MixtralForCausalLM",
          .flavors = MixtralFlavors,
          .defaults = MixtralDefaults,
          .keys = MixtureKeys(
              true, "intermediate_size",
              {{"num_local_experts|num_experts",
                [](MixtureConfig& config) -> int64_t& { return config.experts.experts; }, true}}),
          .read = ReadMixtral,
          .write = WriteMixtral,
          .says = [](const MixtureConfig& config) { return CanSay(config, MixtralDefaults(), {}); },
          .pads = true};
}

}  // namespace meshwright::models
