#include "models/registry.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "models/gpt2.h"
#include "models/hf_config.h"
#include "models/llama.h"
#include "models/mixture_spec.h"

namespace meshwright::models {
namespace {

const std::map<std::string, Gpt2Config>& Gpt2Flavors() {
  static const std::map<std::string, Gpt2Config> flavors = {
      {"debug", {.vocabulary = 256, .positions = 256, .width = 64, .layers = 2, .heads = 4}},
      {"124M", {.width = 768, .layers = 12, .heads = 12}},
      {"355M", {.width = 1024, .layers = 24, .heads = 16}},
      {"774M", {.width = 1280, .layers = 36, .heads = 20}},
      {"1.5B", {.width = 1600, .layers = 48, .heads = 25}},
  };
  return flavors;
}

const std::map<std::string, LlamaConfig>& LlamaFlavors() {
  static const std::map<std::string, LlamaConfig> flavors = {
      {"debug",
       {.vocabulary = 256, .width = 64, .inner = 176, .layers = 2, .heads = 4, .kv_heads = 2}},
      {"7B", {}},
      {"8B",
       {.vocabulary = 128256,
        .width = 4096,
        .inner = 14336,
        .layers = 32,
        .heads = 32,
        .kv_heads = 8,
        .rope_base = 500000}},
      {"70B",
       {.vocabulary = 128256,
        .width = 8192,
        .inner = 28672,
        .layers = 80,
        .heads = 64,
        .kv_heads = 8,
        .rope_base = 500000}},
  };
  return flavors;
}

template <typename Config>
std::vector<std::string> Keys(const std::map<std::string, Config>& map) {
  std::vector<std::string> keys;
  for (const auto& [key, config] : map) keys.push_back(key);
  return keys;
}

template <typename Config>
Result<Config> FindFlavor(const std::map<std::string, Config>& flavors, const ModelSpec& spec) {
  const auto it = flavors.find(spec.flavor.empty() ? "debug" : spec.flavor);
  if (it != flavors.end()) return it->second;
  return Fail(InvalidArgument(fmt::format("model '{}' has no flavor '{}'; known: {}", spec.name,
                                          spec.flavor, fmt::join(Keys(flavors), ", "))));
}

std::string Summary(const Model& model, const std::string& sizes) {
  return fmt::format("{}: {} layers, {}, vocabulary {}, {:.2f} M params", model.name, model.layers,
                     sizes, model.vocabulary, static_cast<double>(model.param_count) / 1e6);
}

// Of gpt2, whose positions are a size.
ModelSpec SizesOf(const Gpt2Config& config) {
  ModelSpec sizes;
  sizes.vocabulary = config.vocabulary;
  sizes.width = config.width;
  sizes.inner = config.inner_width();
  sizes.layers = config.layers;
  sizes.heads = config.heads;
  sizes.positions = config.positions;
  sizes.document_separator = config.document_separator;
  return sizes;
}

ModelSpec SizesOf(const LlamaConfig& config) {
  ModelSpec sizes;
  sizes.vocabulary = config.vocabulary;
  sizes.width = config.width;
  sizes.inner = config.inner;
  sizes.layers = config.layers;
  sizes.heads = config.heads;
  if (!config.latent.any()) sizes.kv_heads = config.kv_head_count();
  if (config.attention_window > 0) sizes.attention_window = config.attention_window;
  sizes.document_separator = config.document_separator;
  return sizes;
}

ModelSpec SizesOf(const MixtureConfig& config) {
  ModelSpec sizes = SizesOf(config.llama);
  sizes.mixture.experts = config.experts.experts;
  sizes.mixture.experts_per_token = config.experts.chosen;
  if (const auto* sigmoid = std::get_if<client::TopOfSigmoid>(&config.experts.router)) {
    sizes.mixture.groups = sigmoid->groups;
    sizes.mixture.groups_per_token = sigmoid->chosen_groups;
  }
  if (config.shared_inner > 0) sizes.mixture.shared_inner = config.shared_inner;
  if (config.dense_layers > 0) {
    sizes.mixture.dense_layers = config.dense_layers;
    sizes.mixture.dense_inner = config.dense_inner;
  }
  return sizes;
}

Result<Model> FromGpt2(Gpt2Config config, const ModelSpec& spec) {
  MW_TRY(RefuseExperts("gpt2", spec.mixture));
  MW_TRY(RefuseField("gpt2", "n_kv_heads", spec.kv_heads.has_value()));
  MW_TRY(RefuseField("gpt2", "rope_theta", spec.rope_base.has_value()));
  MW_TRY(RefuseField("gpt2", "attention_window", spec.attention_window.value_or(0) != 0));
  Override(config.vocabulary, spec.vocabulary);
  Override(config.width, spec.width);
  Override(config.inner, spec.inner);
  Override(config.layers, spec.layers);
  Override(config.heads, spec.heads);
  Override(config.positions, spec.positions);
  Override(config.embedding_dropout, spec.dropout);
  Override(config.residual_dropout, spec.dropout);
  Override(config.attention_dropout, spec.dropout);
  Override(config.epsilon, spec.epsilon);
  Override(config.tied, spec.tied);
  Override(config.document_separator, spec.document_separator);
  MW_TRY(Validate(config));
  Model model{"gpt2",
              {},
              MakeGpt2(config),
              config.layers,
              config.vocabulary,
              config.positions,
              ParamCount(config)};
  model.summary = Summary(model, fmt::format("width {}, {} heads", config.width, config.heads));
  model.sizes = SizesOf(config);
  return model;
}

// What LLaMA and its kin have.
Status OverrideLlama(const char* model, const ModelSpec& spec, LlamaConfig& config) {
  MW_TRY(RefuseField(model, "max_seq_len", spec.positions.has_value()));
  MW_TRY(RefuseField(model, "dropout", spec.dropout.value_or(0) != 0));
  MW_TRY(RefuseField(model, "n_kv_heads", config.latent.any() && spec.kv_heads.has_value()));
  Override(config.vocabulary, spec.vocabulary);
  Override(config.width, spec.width);
  Override(config.inner, spec.inner);
  Override(config.layers, spec.layers);
  Override(config.heads, spec.heads);
  Override(config.kv_heads, spec.kv_heads);
  Override(config.epsilon, spec.epsilon);
  Override(config.rope_base, spec.rope_base);
  Override(config.attention_window, spec.attention_window);
  Override(config.tied, spec.tied);
  Override(config.document_separator, spec.document_separator);
  return OkStatus();
}

Result<Model> FromMixture(MixtureConfig config, const ModelSpec& spec) {
  MW_TRY(OverrideLlama(spec.name.c_str(), spec, config.llama));
  MW_TRY(OverrideMixture(spec.mixture, config));
  MW_TRY(Validate(config));
  Model model{spec.name,
              {},
              MakeMixture(config),
              config.llama.layers,
              config.llama.vocabulary,
              config.llama.positions,
              ParamCount(config)};
  model.summary =
      Summary(model, fmt::format("width {}, {} heads, {} of {} experts ({:.2f} M params a token)",
                                 config.llama.width, config.llama.heads, config.experts.chosen,
                                 config.experts.experts,
                                 static_cast<double>(ActiveParamCount(config)) / 1e6));
  model.sizes = SizesOf(config);
  return model;
}

Result<Model> FromLlama(LlamaConfig config, const ModelSpec& spec) {
  MW_TRY(RefuseExperts("llama", spec.mixture));
  MW_TRY(OverrideLlama("llama", spec, config));
  MW_TRY(Validate(config));
  Model model{
      "llama",           {}, MakeLlama(config), config.layers, config.vocabulary, config.positions,
      ParamCount(config)};
  model.summary = Summary(model, fmt::format("width {}, {} heads, {} kv heads", config.width,
                                             config.heads, config.kv_head_count()));
  model.sizes = SizesOf(config);
  return model;
}

// transformers gives the row of this token in LLaMA's embedding no gradient. Where documents end
// with it, one wants it trained.
Status NotePadToken(const HfConfig& json, Model& model) {
  if (!json.Has("pad_token_id")) return OkStatus();
  int64_t token = 0;
  MW_TRY(json.Read("pad_token_id", token));
  model.notes.push_back(
      fmt::format("config.json: pad_token_id {} has no effect: its embedding is trained like every "
                  "other, where transformers leaves it as it is",
                  token));
  return OkStatus();
}

Result<Model> FromHf(const ModelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const HfConfig json, HfConfig::Parse(*spec.hf_config));
  std::string type;
  MW_TRY(json.Require({"model_type"}));
  MW_TRY(json.Read("model_type", type));
  if (type == "gpt2") {
    MW_ASSIGN_OR_RETURN(Gpt2Config config, Gpt2ConfigFromHf(*spec.hf_config));
    return FromGpt2(config, spec);
  }
  if (type == "llama" || type == "mistral" || type == "qwen2") {
    MW_ASSIGN_OR_RETURN(LlamaConfig config, LlamaConfigFromHf(*spec.hf_config));
    MW_ASSIGN_OR_RETURN(Model model, FromLlama(config, spec));
    MW_TRY(NotePadToken(json, model));
    return model;
  }
  return Fail(Unimplemented(fmt::format(
      "config.json: model_type '{}' is not supported; known: gpt2, llama, mistral, qwen2", type)));
}

}  // namespace

Result<Model> MakeModel(const ModelSpec& spec) {
  if (spec.hf_config) return FromHf(spec);
  if (spec.name == "gpt2") {
    MW_ASSIGN_OR_RETURN(Gpt2Config config, FindFlavor(Gpt2Flavors(), spec));
    return FromGpt2(config, spec);
  }
  if (spec.name == "llama") {
    MW_ASSIGN_OR_RETURN(LlamaConfig config, FindFlavor(LlamaFlavors(), spec));
    return FromLlama(config, spec);
  }
  if (const MixtureFlavors* flavors = FindMixtureFamily(spec.name)) {
    MW_ASSIGN_OR_RETURN(MixtureConfig config, FindFlavor(*flavors, spec));
    return FromMixture(config, spec);
  }
  return Fail(InvalidArgument(
      fmt::format("unknown model '{}'; known: {}", spec.name, fmt::join(ModelNames(), ", "))));
}

std::vector<std::string> ModelNames() {
  std::vector<std::string> names = {"gpt2", "llama"};
  for (const auto& [name, flavors] : MixtureFamilies()) names.push_back(name);
  return names;
}

std::vector<std::string> Flavors(const std::string& model_name) {
  if (model_name == "gpt2") return Keys(Gpt2Flavors());
  if (model_name == "llama") return Keys(LlamaFlavors());
  const MixtureFlavors* mixture = FindMixtureFamily(model_name);
  return mixture == nullptr ? std::vector<std::string>() : Keys(*mixture);
}

}  // namespace meshwright::models
