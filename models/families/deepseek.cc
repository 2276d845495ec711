// DeepSeekMoE, and DeepSeek-V3: latent attention, scores by sigmoids, groups of experts, and a bias
// that chooses. The layer that predicts a second token is not built: files may have it.
#include <variant>

#include "models/families/mixture_line.h"

namespace meshwright::models {
namespace {

using client::TopOfSigmoid;
using client::TopOfSoftmax;

MixtureNames DeepSeekNames() {
  MixtureNames names = GatedNames();
  names.shared = "shared_experts";
  return names;
}

// The first layer has an MLP; shared experts without a gate. "debug" chooses as DeepSeek-V3 does,
// "16B" is the published DeepSeekMoE.
std::map<std::string, MixtureConfig> DeepSeekMoeFlavors() {
  MixtureConfig debug = {
      .llama = SmallMixture(),
      .experts = {.experts = 8,
                  .chosen = 2,
                  .router = TopOfSigmoid{.scale = 2.5, .groups = 4, .chosen_groups = 2}},
      .shared_inner = 48,
      .dense_layers = 1,
      .dense_inner = 176,
      .names = DeepSeekNames()};
  debug.llama.inner = 48;
  MixtureConfig large = debug;
  large.llama = {.vocabulary = 102400,
                 .width = 2048,
                 .inner = 1408,
                 .layers = 28,
                 .heads = 16,
                 .epsilon = 1e-6};
  large.experts = {.experts = 64, .chosen = 6, .router = TopOfSoftmax{.normalised = false}};
  large.shared_inner = 2816;
  large.dense_inner = 10944;
  return {{"debug", debug}, {"16B", large}};
}

// DeepSeekMoE's debug with latent attention; "671B" is the published model without the layer that
// predicts a second token.
std::map<std::string, MixtureConfig> DeepSeekV3Flavors() {
  MixtureConfig debug = DeepSeekMoeFlavors().at("debug");
  debug.llama.kv_heads = 0;
  debug.llama.latent = {.query_rank = 32, .rank = 16, .plain = 16, .turned = 8, .value = 16};
  MixtureConfig large = debug;
  large.llama = {
      .vocabulary = 129280,
      .width = 7168,
      .inner = 2048,
      .layers = 61,
      .heads = 128,
      .epsilon = 1e-6,
      .latent = {.query_rank = 1536, .rank = 512, .plain = 128, .turned = 64, .value = 128}};
  large.experts = {.experts = 256,
                   .chosen = 8,
                   .router = TopOfSigmoid{.scale = 2.5, .groups = 8, .chosen_groups = 4}};
  large.shared_inner = 2048;
  large.dense_layers = 3;
  large.dense_inner = 18432;
  return {{"debug", debug}, {"671B", large}};
}

// transformers never moves the bias that chooses; model.router_bias_rate has it moved.
MixtureConfig DeepSeekV3Defaults() {
  return {
      .llama = {.epsilon = 1e-6, .rope_neighbours = true},
      .experts = {.router =
                      TopOfSigmoid{.scale = 2.5, .groups = 8, .chosen_groups = 4, .bias_rate = 0}},
      .dense_layers = 3,
      .names = DeepSeekNames()};
}

TopOfSigmoid& RouterOf(MixtureConfig& config) {
  return std::get<TopOfSigmoid>(config.experts.router);
}

Status ReadDeepSeekV3(const HfConfig& json, MixtureConfig& config) {
  LlamaConfig& llama = config.llama;
  MW_TRY(json.RefuseOther("attention_bias", false));
  MW_TRY(json.Require({"n_shared_experts"}));
  constexpr int64_t kUsualRank = 1536;
  if (!json.Has("q_lora_rank") && !json.IsNull("q_lora_rank")) {
    llama.latent.query_rank = kUsualRank;
  }
  int64_t heads = llama.heads;
  MW_TRY(json.Read("num_key_value_heads", heads));
  if (heads != llama.heads) {
    return InvalidArgument(fmt::format(
        "config.json: num_key_value_heads is {}; latent attention has as many as heads, {}", heads,
        llama.heads));
  }
  int64_t shared = 0;
  MW_TRY(json.Read("n_shared_experts", shared));
  MW_TRY(CheckPositive({{"n_shared_experts", shared}, {"moe_intermediate_size", llama.inner}}));
  config.shared_inner = shared * llama.inner;
  MW_TRY(ReadNormalised(json, config));
  return ReadLlamaForms(json, llama);
}

void WriteDeepSeekV3(const MixtureConfig& config, HfWriter& json) {
  const LlamaConfig& llama = config.llama;
  WriteLlamaForms(llama, json);
  json.Set("num_key_value_heads", llama.heads);
  json.Set("head_dim", llama.latent.turned);
  json.Set("qk_head_dim", llama.latent.head());
  if (llama.latent.query_rank == 0) json.SetNull("q_lora_rank");
  json.Set("n_shared_experts", config.shared_inner / llama.inner);
  json.Set("first_k_dense_replace", config.dense_layers);
  json.Set("num_nextn_predict_layers", int64_t{0});
  WriteNormalised(config, json);
}

std::vector<HfKey<MixtureConfig>> DeepSeekV3Keys() {
  std::vector<HfKey<MixtureConfig>> keys = MixtureKeys(
      false, "moe_intermediate_size",
      {{"n_routed_experts|num_local_experts",
        [](MixtureConfig& config) -> int64_t& { return config.experts.experts; }, true},
       {"first_k_dense_replace", &MixtureConfig::dense_layers, false},
       {"q_lora_rank",
        [](MixtureConfig& config) -> int64_t& { return config.llama.latent.query_rank; }, false},
       {"kv_lora_rank", [](MixtureConfig& config) -> int64_t& { return config.llama.latent.rank; },
        true},
       {"qk_nope_head_dim",
        [](MixtureConfig& config) -> int64_t& { return config.llama.latent.plain; }, true},
       {"qk_rope_head_dim",
        [](MixtureConfig& config) -> int64_t& { return config.llama.latent.turned; }, true},
       {"v_head_dim", [](MixtureConfig& config) -> int64_t& { return config.llama.latent.value; },
        true},
       {"rope_interleave",
        [](MixtureConfig& config) -> bool& { return config.llama.rope_neighbours; }, false},
       {"n_group", [](MixtureConfig& config) -> int64_t& { return RouterOf(config).groups; },
        false},
       {"topk_group",
        [](MixtureConfig& config) -> int64_t& { return RouterOf(config).chosen_groups; }, false},
       {"routed_scaling_factor",
        [](MixtureConfig& config) -> double& { return RouterOf(config).scale; }, false}});
  // Heads have parts here, and no number of their own for keys.
  std::erase_if(keys, [](const HfKey<MixtureConfig>& key) {
    return key.name == "num_key_value_heads" || key.name == "head_dim";
  });
  return keys;
}

}  // namespace

FamilyRow<MixtureConfig> DeepSeekMoeFamily() {
  return {.name = "deepseek-moe", .flavors = DeepSeekMoeFlavors};
}

FamilyRow<MixtureConfig> DeepSeekV3Family() {
  return {.name = "deepseek-v3",
          .type = "deepseek_v3",
          .architecture = "DeepseekV3ForCausalLM",
          .flavors = DeepSeekV3Flavors,
          .defaults = DeepSeekV3Defaults,
          .keys = DeepSeekV3Keys(),
          .read = ReadDeepSeekV3,
          .write = WriteDeepSeekV3,
          .says =
              [](const MixtureConfig& config) {
                return CanSay(config, DeepSeekV3Defaults(), {true, true, true}) &&
                       config.shared_inner > 0 && config.shared_inner % config.llama.inner == 0;
              },
          .pads = true};
}

}  // namespace meshwright::models
