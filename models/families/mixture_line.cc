#include "models/families/mixture_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>
#include <variant>

#include "models/families/families.h"

namespace meshwright::models {
namespace {

using client::ExpertChoice;
using client::NoisyTop;
using client::SoftmaxOfTop;
using client::TopOfSigmoid;
using client::TopOfSoftmax;

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

std::vector<HfKey<MixtureConfig>> OfBlocks(std::vector<HfKey<LlamaConfig>> keys) {
  std::vector<HfKey<MixtureConfig>> found;
  for (HfKey<LlamaConfig>& key : keys) {
    HfKey<MixtureConfig> of_blocks{std::move(key.name), {}, key.wanted};
    std::visit(
        [&](const auto& of) {
          of_blocks.field = [of](MixtureConfig& config) -> decltype(of(config.llama)) {
            return of(config.llama);
          };
        },
        key.field);
    found.push_back(std::move(of_blocks));
  }
  return found;
}

std::vector<HfKey<MixtureConfig>> MixtureKeys(bool kv_wanted, const char* inner,
                                              std::vector<HfKey<MixtureConfig>> more) {
  constexpr char kInner[] = "intermediate_size";
  std::vector<HfKey<MixtureConfig>> keys = OfBlocks(LlamaKeys(kv_wanted));
  for (HfKey<MixtureConfig>& key : keys) {
    if (key.name == kInner) key.name = inner;
  }
  if (inner != std::string(kInner)) {
    keys.push_back({kInner, &MixtureConfig::dense_inner, false});
  }
  keys.push_back({"num_experts_per_tok",
                  [](MixtureConfig& config) -> int64_t& { return config.experts.chosen; }, true});
  for (HfKey<MixtureConfig>& key : more) keys.push_back(std::move(key));
  return keys;
}

Status ReadRouterLoss(const HfConfig& json, double usual, MixtureConfig& config) {
  bool used = false;
  MW_TRY(json.Read("output_router_logits", used));
  if (!used) return OkStatus();
  config.balance_form = client::BalanceForm::kMixtral;
  config.balance_loss = usual;
  return json.Read("router_aux_loss_coef", config.balance_loss);
}

void WriteRouterLoss(const MixtureConfig& config, HfWriter& json) {
  const bool used = config.balance_loss > 0 && config.balance_form == client::BalanceForm::kMixtral;
  json.Set("output_router_logits", used);
  if (used) json.Set("router_aux_loss_coef", config.balance_loss);
}

Status ReadNormalised(const HfConfig& json, MixtureConfig& config) {
  client::Router& router = config.experts.router;
  if (auto* softmax = std::get_if<TopOfSoftmax>(&router)) {
    return json.Read("norm_topk_prob", softmax->normalised);
  }
  auto* sigmoid = std::get_if<TopOfSigmoid>(&router);
  return sigmoid == nullptr ? OkStatus() : json.Read("norm_topk_prob", sigmoid->normalised);
}

void WriteNormalised(const MixtureConfig& config, HfWriter& json) {
  const client::Router& router = config.experts.router;
  if (const auto* softmax = std::get_if<TopOfSoftmax>(&router)) {
    json.Set("norm_topk_prob", softmax->normalised);
  }
  if (const auto* sigmoid = std::get_if<TopOfSigmoid>(&router)) {
    json.Set("norm_topk_prob", sigmoid->normalised);
  }
}

bool CanSay(const MixtureConfig& config, const MixtureConfig& usual, const MixtureWords& words) {
  const client::Router& router = config.experts.router;
  if (router.index() != usual.experts.router.index() || config.experts.capacity_factor > 0) {
    return false;
  }
  const auto* softmax = std::get_if<TopOfSoftmax>(&router);
  if (softmax != nullptr && !softmax->normalised && !words.normalised) return false;
  return (words.shared || config.shared_inner == 0) && (words.dense || config.dense_layers == 0);
}

MixtureNames GatedNames() {
  return {.layer = "mlp", .gate = "gate_proj", .up = "up_proj", .down = "down_proj"};
}

LlamaConfig SmallMixture() {
  return {.vocabulary = 256, .width = 64, .inner = 96, .layers = 2, .heads = 4, .kv_heads = 2};
}

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
  std::vector<Family> families;
  for (FamilyRow<MixtureConfig>& row : std::vector<FamilyRow<MixtureConfig>>{
           DeepSeekMoeFamily(), DeepSeekV3Family(), GptOssFamily(), MixtralFamily(), OlmoeFamily(),
           Qwen2MoeFamily(), Qwen3MoeFamily()}) {
    families.push_back(MakeFamily(std::move(row)));
  }
  return families;
}

std::vector<std::string> RouterNames() {
  std::vector<std::string> names;
  for (const auto& [name, router] : Routers()) names.emplace_back(name);
  return names;
}

}  // namespace meshwright::models
