// Qwen2-MoE: biases of q, k and v, and an MLP for all tokens behind a gate. Qwen3-MoE: norms of
// each head's queries and keys, and no such MLP.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/families/mixture_line.h"

namespace meshwright::models {
namespace {

using client::TopOfSoftmax;

// Biases of q, k and v; an MLP for all tokens behind a gate; weights as the softmax has them.
std::map<std::string, MixtureConfig> Qwen2MoeFlavors() {
  MixtureConfig debug = {
      .llama = SmallMixture(),
      .experts = {.experts = 8, .chosen = 2, .router = TopOfSoftmax{.normalised = false}},
      .shared_inner = 128,
      .shared_gated = true,
      .names = GatedNames()};
  debug.llama.inner = 48;
  debug.llama.attention_bias = true;
  MixtureConfig large = debug;
  large.llama = {.vocabulary = 151936,
                 .width = 2048,
                 .inner = 1408,
                 .layers = 24,
                 .heads = 16,
                 .epsilon = 1e-6,
                 .rope_base = 1e6,
                 .attention_bias = true};
  large.experts.experts = 60;
  large.experts.chosen = 4;
  large.shared_inner = 5632;
  return {{"debug", debug}, {"A2.7B", large}};
}

// Norms of q and k by head; no shared expert.
std::map<std::string, MixtureConfig> Qwen3MoeFlavors() {
  MixtureConfig debug = {
      .llama = SmallMixture(), .experts = {.experts = 8, .chosen = 2}, .names = GatedNames()};
  debug.llama.inner = 48;
  debug.llama.head_norm = HeadNorm::kEach;
  MixtureConfig large = debug;
  large.llama = {.vocabulary = 151936,
                 .width = 2048,
                 .inner = 768,
                 .layers = 48,
                 .heads = 32,
                 .kv_heads = 4,
                 .head_size = 128,
                 .epsilon = 1e-6,
                 .rope_base = 1e6,
                 .head_norm = HeadNorm::kEach};
  large.experts.experts = 128;
  large.experts.chosen = 8;
  return {{"debug", debug}, {"30B-A3B", large}};
}

// Layers without experts come first here.
Status ReadDenseLayers(const HfConfig& json, MixtureConfig& config) {
  int64_t step = 1;
  std::vector<double> listed;
  MW_TRY(json.Read("decoder_sparse_step", step));
  MW_TRY(json.Read("mlp_only_layers", listed));
  MW_TRY(CheckPositive({{"decoder_sparse_step", step}}));
  const int64_t layers = std::clamp<int64_t>(config.llama.layers, 1, 1 << 20);
  config.dense_layers = 0;
  for (int64_t i = 0; i < layers; ++i) {
    const auto is = [i](double layer) { return std::lround(layer) == i; };
    const bool dense =
        (i + 1) % step != 0 || std::find_if(listed.begin(), listed.end(), is) != listed.end();
    if (!dense) continue;
    if (config.dense_layers != i) {
      return Unimplemented(fmt::format(
          "config.json: decoder_sparse_step {} and mlp_only_layers leave layer {} without experts "
          "behind one that has them; only the first layers may be without",
          step, i));
    }
    ++config.dense_layers;
  }
  return OkStatus();
}

void WriteDenseLayers(const MixtureConfig& config, HfWriter& json) {
  std::vector<int64_t> dense;
  for (int64_t i = 0; i < config.dense_layers; ++i) dense.push_back(i);
  json.Set("decoder_sparse_step", int64_t{1});
  json.Set("mlp_only_layers", dense);
}

Status ReadQwenMoe(const HfConfig& json, MixtureConfig& config) {
  MW_TRY(ReadDenseLayers(json, config));
  MW_TRY(ReadNormalised(json, config));
  MW_TRY(ReadRouterLoss(json, 0.001, config));
  return ReadLlamaForms(json, config.llama);
}

void WriteQwenMoe(const MixtureConfig& config, HfWriter& json) {
  WriteLlamaForms(config.llama, json);
  WriteDenseLayers(config, json);
  WriteNormalised(config, json);
  WriteRouterLoss(config, json);
}

// Of the first layers every second one has the window, from the first on.
Status ReadQwen2MoeWindow(const HfConfig& json, LlamaConfig& config) {
  bool used = false;
  MW_TRY(json.Read("use_sliding_window", used));
  if (!used) return OkStatus();
  int64_t last = 28;  // the default of Hugging Face's config
  MW_TRY(json.Read("max_window_layers", last));
  config.windowed.clear();
  for (int64_t i = 0; i < std::clamp<int64_t>(config.layers, 1, 1 << 20); ++i) {
    config.windowed.push_back(i % 2 == 0 && i < last);
  }
  MW_TRY(ReadLayerTypes(json, config));
  constexpr int64_t kUsual = 4096;
  return ReadSlidingWindow(json, kUsual, config);
}

Status ReadQwen2Moe(const HfConfig& json, MixtureConfig& config) {
  MW_TRY(ReadQwen2MoeWindow(json, config.llama));
  return ReadQwenMoe(json, config);
}

void WriteQwen2Moe(const MixtureConfig& config, HfWriter& json) {
  WriteQwenMoe(config, json);
  WriteQwenWindow(config.llama, json);
}

// All layers have the window.
Status ReadQwen3Moe(const HfConfig& json, MixtureConfig& config) {
  MW_TRY(ReadAttentionBias(json, config.llama));
  bool window = false;
  MW_TRY(json.Read("use_sliding_window", window));
  constexpr int64_t kUsual = 4096;
  if (window) MW_TRY(ReadSlidingWindow(json, kUsual, config.llama));
  return ReadQwenMoe(json, config);
}

void WriteQwen3Moe(const MixtureConfig& config, HfWriter& json) {
  WriteQwenMoe(config, json);
  json.Set("use_sliding_window", config.llama.attention_window > 0);
  WriteSlidingWindow(config.llama, json);
}

MixtureConfig Defaults(bool is_third) {
  MixtureConfig config{.experts = {.router = TopOfSoftmax{.normalised = false}},
                       .shared_gated = !is_third,
                       .names = GatedNames()};
  config.llama.epsilon = 1e-6;
  config.llama.attention_bias = !is_third;
  if (is_third) config.llama.head_norm = HeadNorm::kEach;
  return config;
}

int64_t& ExpertsOf(MixtureConfig& config) { return config.experts.experts; }

}  // namespace

FamilyRow<MixtureConfig> Qwen2MoeFamily() {
  return {
      .name = "qwen2-moe",
      .type = "qwen2_moe",
      .architecture = "Qwen2MoeForCausalLM",
      .flavors = Qwen2MoeFlavors,
      .defaults = [] { return Defaults(false); },
      .keys = MixtureKeys(
          true, "moe_intermediate_size",
          {{"num_experts|num_local_experts", ExpertsOf, true},
           {"shared_expert_intermediate_size", &MixtureConfig::shared_inner, true},
           {"qkv_bias", [](MixtureConfig& config) -> bool& { return config.llama.attention_bias; },
            false}}),
      .read = ReadQwen2Moe,
      .write = WriteQwen2Moe,
      .says =
          [](const MixtureConfig& config) {
            return CanSay(config, Defaults(false), {true, true, true}) && config.shared_inner > 0;
          },
      .pads = true};
}

FamilyRow<MixtureConfig> Qwen3MoeFamily() {
  return {
      .name = "qwen3-moe",
      .type = "qwen3_moe",
      .architecture = "Qwen3MoeForCausalLM",
      .flavors = Qwen3MoeFlavors,
      .defaults = [] { return Defaults(true); },
      .keys = MixtureKeys(
          true, "moe_intermediate_size",
          {{"num_experts|num_local_experts", ExpertsOf, true},
           {"attention_bias",
            [](MixtureConfig& config) -> bool& { return config.llama.attention_bias; }, false}}),
      .read = ReadQwen3Moe,
      .write = WriteQwen3Moe,
      .says =
          [](const MixtureConfig& config) {
            return CanSay(config, Defaults(true), {.normalised = true, .dense = true});
          },
      .pads = true};
}

}  // namespace meshwright::models
