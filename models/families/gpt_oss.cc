// gpt-oss: biases everywhere, sinks of attention, a window in every second layer, experts with
// clamped gates.
#include <fmt/format.h>

#include <cmath>

#include "models/families/mixture_line.h"

namespace meshwright::models {
namespace {

using client::SoftmaxOfTop;

// How positions are stretched where nobody says it.
RopeScaling UsualScaling() {
  RopeScaling scaling{.kind = RopeKind::kYarn, .factor = 32, .original = 4096, .whole = false};
  scaling.amplitude = 0.1 * std::log(scaling.factor) + 1;
  return scaling;
}

MixtureNames GptOssNames() {
  MixtureNames names = GatedNames();
  names.files = ExpertFiles::kInTurn;
  return names;
}

// Biases everywhere, sinks of attention, a window in every second layer; experts with clamped
// gates.
std::map<std::string, MixtureConfig> GptOssFlavors() {
  MixtureConfig debug = {.llama = SmallMixture(),
                         .experts = {.experts = 8,
                                     .chosen = 2,
                                     .router = SoftmaxOfTop{.bias = true},
                                     .gate = "router"},
                         .expert_bias = true,
                         .glu_limit = 7,
                         .names = GptOssNames()};
  debug.llama.inner = 48;
  debug.llama.attention_bias = true;
  debug.llama.output_bias = true;
  debug.llama.attention_sinks = true;
  debug.llama.attention_window = 32;
  debug.llama.windowed = {true, false};
  MixtureConfig large = debug;
  large.llama = {.vocabulary = 201088,
                 .width = 2880,
                 .inner = 2880,
                 .layers = 24,
                 .heads = 64,
                 .kv_heads = 8,
                 .head_size = 64,
                 .rope_base = 150000,
                 .attention_bias = true,
                 .output_bias = true,
                 .attention_sinks = true,
                 .attention_window = 128,
                 .windowed = {true, false}};
  large.llama.rope_scaling = UsualScaling();
  large.experts.experts = 32;
  large.experts.chosen = 4;
  MixtureConfig larger = large;
  larger.llama.layers = 36;
  larger.experts.experts = 128;
  return {{"debug", debug}, {"20b", large}, {"120b", larger}};
}

// What absent keys mean: the positions of a model that says nothing are stretched, too.
MixtureConfig GptOssDefaults() {
  MixtureConfig config{.experts = {.router = SoftmaxOfTop{.bias = true}, .gate = "router"},
                       .expert_bias = true,
                       .glu_limit = 7,
                       .names = GptOssNames()};
  config.llama = {.head_size = 64,
                  .rope_base = 150000,
                  .attention_bias = true,
                  .output_bias = true,
                  .attention_sinks = true,
                  .windowed = {true, false}};
  return config;
}

Status ReadGptOss(const HfConfig& json, MixtureConfig& config) {
  LlamaConfig& llama = config.llama;
  MW_TRY(ReadAttentionBias(json, llama));
  constexpr int64_t kUsual = 128;
  MW_TRY(ReadSlidingWindow(json, kUsual, llama));
  MW_TRY(ReadLayerTypes(json, llama));
  MW_TRY(ReadRouterLoss(json, 0.001, config));
  std::string activation = "silu";
  MW_TRY(json.Read("hidden_act", activation));
  if (activation != "silu") {
    return Unimplemented(
        fmt::format("config.json: hidden_act '{}' is not supported; only silu", activation));
  }
  MW_TRY(ReadLlamaForms(json, llama));
  if (!json.Has("rope_parameters") && !json.Has("rope_scaling")) {
    llama.rope_scaling = UsualScaling();
  }
  return OkStatus();
}

void WriteGptOss(const MixtureConfig& config, HfWriter& json) {
  WriteLlamaForms(config.llama, json);
  WriteSlidingWindow(config.llama, json);
  WriteLayerTypes(config.llama, json);
  WriteRouterLoss(config, json);
}

}  // namespace

FamilyRow<MixtureConfig> GptOssFamily() {
  return {
      .name = "gpt-oss",
      .type = "gpt_oss",
      .architecture = "GptOssForCausalLM",
      .flavors = GptOssFlavors,
      .defaults = GptOssDefaults,
      .keys = MixtureKeys(
          true, "intermediate_size",
          {{"num_local_experts|num_experts",
            [](MixtureConfig& config) -> int64_t& { return config.experts.experts; }, true},
           {"swiglu_limit", &MixtureConfig::glu_limit, false},
           {"swiglu_alpha", &MixtureConfig::glu_slope, false},
           {"attention_bias",
            [](MixtureConfig& config) -> bool& { return config.llama.attention_bias; }, false}}),
      .read = ReadGptOss,
      .write = WriteGptOss,
      .says = [](const MixtureConfig& config) { return CanSay(config, GptOssDefaults(), {}); },
      .pads = true};
}

}  // namespace meshwright::models
