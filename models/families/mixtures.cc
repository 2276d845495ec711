// Mixtures of experts by name: the families with their sizes, and what a user says of them.
#include "models/mixture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "models/families/families.h"
#include "models/families/llama_line.h"

namespace meshwright::models {
namespace {

using client::ExpertChoice;
using client::NoisyTop;
using client::SoftmaxOfTop;
using client::TopOfSigmoid;
using client::TopOfSoftmax;

const MixtureNames kQwenNames = {
    .layer = "mlp", .gate = "gate_proj", .up = "up_proj", .down = "down_proj"};
const MixtureNames kDeepSeekNames = {.layer = "mlp",
                                     .gate = "gate_proj",
                                     .up = "up_proj",
                                     .down = "down_proj",
                                     .shared = "shared_experts"};

const LlamaConfig kDebug = {
    .vocabulary = 256, .width = 64, .inner = 96, .layers = 2, .heads = 4, .kv_heads = 2};

std::map<std::string, MixtureConfig> Mixtral() {
  return {{"debug", {.llama = kDebug, .experts = {.experts = 4, .chosen = 2}}},
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

// Biases of q, k and v; an MLP for all tokens behind a gate; weights as the softmax has them.
std::map<std::string, MixtureConfig> Qwen2Moe() {
  MixtureConfig debug = {
      .llama = kDebug,
      .experts = {.experts = 8, .chosen = 2, .router = TopOfSoftmax{.normalised = false}},
      .shared_inner = 128,
      .shared_gated = true,
      .names = kQwenNames};
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
std::map<std::string, MixtureConfig> Qwen3Moe() {
  MixtureConfig debug = {
      .llama = kDebug, .experts = {.experts = 8, .chosen = 2}, .names = kQwenNames};
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

// Norms of q and k over all heads; weights as the softmax has them.
std::map<std::string, MixtureConfig> Olmoe() {
  MixtureConfig debug = {
      .llama = kDebug,
      .experts = {.experts = 8, .chosen = 2, .router = TopOfSoftmax{.normalised = false}},
      .names = kQwenNames};
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

// The first layer has an MLP; shared experts without a gate. "debug" chooses as DeepSeek-V3 does,
// "16B" is the published DeepSeekMoE.
std::map<std::string, MixtureConfig> DeepSeekMoe() {
  MixtureConfig debug = {
      .llama = kDebug,
      .experts = {.experts = 8,
                  .chosen = 2,
                  .router = TopOfSigmoid{.scale = 2.5, .groups = 4, .chosen_groups = 2}},
      .shared_inner = 48,
      .dense_layers = 1,
      .dense_inner = 176,
      .names = kDeepSeekNames};
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
std::map<std::string, MixtureConfig> DeepSeekV3() {
  MixtureConfig debug = DeepSeekMoe().at("debug");
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

// Biases everywhere, sinks of attention, a window in every second layer; experts with clamped
// gates.
std::map<std::string, MixtureConfig> GptOss() {
  MixtureConfig debug = {
      .llama = kDebug,
      .experts = {.experts = 8, .chosen = 2, .router = SoftmaxOfTop{.bias = true}},
      .expert_bias = true,
      .glu_limit = 7,
      .names = kQwenNames};
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
  large.experts.experts = 32;
  large.experts.chosen = 4;
  MixtureConfig larger = large;
  larger.llama.layers = 36;
  larger.experts.experts = 128;
  return {{"debug", debug}, {"20b", large}, {"120b", larger}};
}

const std::vector<std::pair<const char*, client::Router>>& Routers() {
  static const std::vector<std::pair<const char*, client::Router>> routers = {
      {"softmax", TopOfSoftmax{}},
      {"softmax_of_top", SoftmaxOfTop{}},
      {"noisy", NoisyTop{}},
      {"sigmoid", TopOfSigmoid{}},
      {"expert_choice", ExpertChoice{}}};
  return routers;
}

Status OverrideRouter(const MixtureSpec& spec, client::Router& router) {
  if (spec.router != kOfFamily) {
    bool found = false;
    for (const auto& [name, known] : Routers()) {
      if (spec.router != name) continue;
      // The family's own settings stay where it has this kind.
      if (router.index() != known.index()) router = known;
      found = true;
    }
    if (!found) {
      return InvalidArgument(fmt::format("router '{}' is unknown; one of {}", spec.router,
                                         fmt::join(RouterNames(), ", ")));
    }
  }
  auto* softmax = std::get_if<TopOfSoftmax>(&router);
  auto* sigmoid = std::get_if<TopOfSigmoid>(&router);
  if (softmax != nullptr) Override(softmax->normalised, spec.normalised);
  if (sigmoid != nullptr) {
    Override(sigmoid->normalised, spec.normalised);
    Override(sigmoid->groups, spec.groups);
    Override(sigmoid->chosen_groups, spec.groups_per_token);
    Override(sigmoid->scale, spec.scale);
    Override(sigmoid->bias_rate, spec.bias_rate);
    return OkStatus();
  }
  for (const auto& [key, set] :
       {std::pair("expert_groups", spec.groups.has_value()),
        std::pair("expert_groups_per_token", spec.groups_per_token.has_value()),
        std::pair("routed_scale", spec.scale.has_value()),
        std::pair("router_bias_rate", spec.bias_rate.has_value())}) {
    if (!set) continue;
    return InvalidArgument(
        fmt::format("{} is of router \"sigmoid\" only; remove it or choose that router", key));
  }
  if (softmax == nullptr && spec.normalised.has_value()) {
    return InvalidArgument(
        "normalise_weights is of routers \"softmax\" and \"sigmoid\" only; remove it");
  }
  return OkStatus();
}

Status OverrideMixture(const MixtureSpec& spec, MixtureConfig& config) {
  Override(config.experts.experts, spec.experts);
  Override(config.experts.chosen, spec.experts_per_token);
  Override(config.experts.capacity_factor, spec.capacity_factor);
  Override(config.experts.slots_factor, spec.slots_factor);
  MW_TRY(OverrideRouter(spec, config.experts.router));
  Override(config.shared_inner, spec.shared_inner);
  Override(config.dense_layers, spec.dense_layers);
  Override(config.dense_inner, spec.dense_inner);
  Override(config.balance_loss, spec.balance_loss);
  Override(config.z_loss, spec.z_loss);
  if (spec.balance_form == kOfFamily) return OkStatus();
  MW_ASSIGN_OR_RETURN(config.balance_form, client::ParseBalanceForm(spec.balance_form));
  return OkStatus();
}

}  // namespace

Status ApplySpec(const std::string& family, const ModelSpec& spec, MixtureConfig& config) {
  ModelSpec dense = spec;
  dense.mixture = {};
  MW_TRY(ApplySpec(family, dense, config.llama));
  return OverrideMixture(spec.mixture, config);
}

Model ModelOf(const std::string& family, const MixtureConfig& config) {
  Model model;
  model.name = family;
  model.functions = MakeMixture(config);
  model.layers = config.llama.layers;
  model.vocabulary = config.llama.vocabulary;
  model.max_sequence = config.llama.positions;
  model.param_count = ParamCount(config);
  model.summary =
      SummaryOf(model, fmt::format("width {}, {} heads, {} of {} experts ({:.2f} M params a token)",
                                   config.llama.width, config.llama.heads, config.experts.chosen,
                                   config.experts.experts,
                                   static_cast<double>(ActiveParamCount(config)) / 1e6));
  model.sizes = SizesOf(config.llama);
  model.sizes.mixture.experts = config.experts.experts;
  model.sizes.mixture.experts_per_token = config.experts.chosen;
  if (const auto* sigmoid = std::get_if<TopOfSigmoid>(&config.experts.router)) {
    model.sizes.mixture.groups = sigmoid->groups;
    model.sizes.mixture.groups_per_token = sigmoid->chosen_groups;
  }
  if (config.shared_inner > 0) model.sizes.mixture.shared_inner = config.shared_inner;
  if (config.dense_layers > 0) {
    model.sizes.mixture.dense_layers = config.dense_layers;
    model.sizes.mixture.dense_inner = config.dense_inner;
  }
  return model;
}

std::vector<Family> MixtureFamilies() {
  const FamilyRow<MixtureConfig> rows[] = {
      {.name = "deepseek-moe", .flavors = DeepSeekMoe},
      {.name = "deepseek-v3", .flavors = DeepSeekV3},
      {.name = "gpt-oss", .flavors = GptOss},
      {.name = "mixtral", .flavors = Mixtral},
      {.name = "olmoe", .flavors = Olmoe},
      {.name = "qwen2-moe", .flavors = Qwen2Moe},
      {.name = "qwen3-moe", .flavors = Qwen3Moe},
  };
  std::vector<Family> families;
  for (const FamilyRow<MixtureConfig>& row : rows) families.push_back(MakeFamily(row));
  return families;
}

std::vector<std::string> RouterNames() {
  std::vector<std::string> names;
  for (const auto& [name, router] : Routers()) names.emplace_back(name);
  return names;
}

}  // namespace meshwright::models
