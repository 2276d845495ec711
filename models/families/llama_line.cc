#include "models/families/llama_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "models/families/families.h"

namespace meshwright::models {
namespace {

constexpr char kSliding[] = "sliding_attention";
constexpr char kFull[] = "full_attention";

// Older files have rope_theta beside rope_scaling, newer ones both in rope_parameters; transformers
// reads the older name first.
std::string RopeKey(const HfConfig& json) {
  return json.Has("rope_scaling") ? "rope_scaling" : "rope_parameters";
}

}  // namespace

std::vector<HfKey<LlamaConfig>> LlamaKeys(bool kv_wanted, std::vector<HfKey<LlamaConfig>> more) {
  std::vector<HfKey<LlamaConfig>> keys = {
      {"vocab_size", &LlamaConfig::vocabulary, true},
      {"hidden_size", &LlamaConfig::width, true},
      {"intermediate_size", &LlamaConfig::inner, true},
      {"num_hidden_layers", &LlamaConfig::layers, true},
      {"num_attention_heads", &LlamaConfig::heads, true},
      {"num_key_value_heads", &LlamaConfig::kv_heads, kv_wanted},
      {"head_dim", &LlamaConfig::head_size},
      {"max_position_embeddings", &LlamaConfig::positions},
      {"rms_norm_eps", &LlamaConfig::epsilon},
      {"attention_dropout", &LlamaConfig::attention_dropout},
      {"tie_word_embeddings", &LlamaConfig::tied}};
  for (HfKey<LlamaConfig>& key : more) keys.push_back(std::move(key));
  return keys;
}

Status ReadLlamaForms(const HfConfig& json, LlamaConfig& config) {
  MW_TRY(json.RefuseOther("pretraining_tp", 1.0));
  if (json.Has("max_position_embeddings")) {
    MW_TRY(CheckPositive({{"max_position_embeddings", config.positions}}));
  }
  if (json.Has("hidden_act")) {
    std::string activation;
    MW_TRY(json.Read("hidden_act", activation));
    MW_ASSIGN_OR_RETURN(config.activation, ParseActivation("hidden_act", activation));
  }
  const std::string key = RopeKey(json);
  for (const std::string& part :
       {std::string("partial_rotary_factor"), key + ".partial_rotary_factor"}) {
    MW_TRY(json.RefuseOther(part, config.rope_part));
  }
  for (const std::string& name : {std::string("rope_theta"), key + ".rope_theta"}) {
    MW_TRY(json.Read(name, config.rope_base));
  }
  MW_TRY(ReadRopeScaling(json, key, config.positions, config.rope_scaling));
  // The positions of what is stretched by the length of a text have no end.
  if (config.rope_scaling.kind == RopeKind::kDynamic) config.positions = 0;
  return OkStatus();
}

void WriteLlamaForms(const LlamaConfig& config, HfWriter& json) {
  json.Set("hidden_act", ActivationName(config.activation));
  // What absent keys mean is another number in each family.
  json.Set("num_key_value_heads", config.kv_head_count());
  json.Set("head_dim", config.head_width());
  for (const char* old : {"rope_theta", "rope_scaling"}) json.Remove(old);
  WriteRope(RopeOf(config, 0), "rope_parameters", json);
  if (config.rope_scaling.kind == RopeKind::kDynamic) {
    json.Set("max_position_embeddings", config.rope_scaling.original);
  }
}

Status ReadSlidingWindow(const HfConfig& json, int64_t usual, LlamaConfig& config) {
  if (json.IsNull("sliding_window")) return OkStatus();
  config.attention_window = usual;
  if (!json.Has("sliding_window")) return OkStatus();
  MW_TRY(json.Read("sliding_window", config.attention_window));
  return CheckPositive({{"sliding_window", config.attention_window}});
}

void WriteSlidingWindow(const LlamaConfig& config, HfWriter& json) {
  if (config.attention_window > 0) {
    json.Set("sliding_window", config.attention_window);
  } else {
    json.SetNull("sliding_window");
  }
}

Status ReadLayerTypes(const HfConfig& json, LlamaConfig& config) {
  if (!json.Has("layer_types")) return OkStatus();
  std::vector<std::string> types;
  MW_TRY(json.Read("layer_types", types));
  if (static_cast<int64_t>(types.size()) != config.layers) {
    return InvalidArgument(
        fmt::format("config.json: layer_types has {} of {} layers", types.size(), config.layers));
  }
  config.windowed.clear();
  for (const std::string& type : types) {
    if (type != kSliding && type != kFull) {
      return Unimplemented(fmt::format(
          "config.json: layer_types '{}' is not supported; known: {}, {}", type, kFull, kSliding));
    }
    config.windowed.push_back(type == kSliding);
  }
  return OkStatus();
}

void WriteLayerTypes(const LlamaConfig& config, HfWriter& json) {
  std::vector<std::string> types;
  for (int64_t i = 0; i < config.layers; ++i) {
    types.emplace_back(config.has_window(i) ? kSliding : kFull);
  }
  json.Set("layer_types", types);
}

Status ReadQwenWindow(const HfConfig& json, LlamaConfig& config) {
  bool used = false;
  MW_TRY(json.Read("use_sliding_window", used));
  if (!used) return OkStatus();
  int64_t first = 28;  // the default of Hugging Face's config of both
  MW_TRY(json.Read("max_window_layers", first));
  config.windowed.clear();
  for (int64_t i = 0; i < std::clamp<int64_t>(config.layers, 1, 1 << 20); ++i) {
    config.windowed.push_back(i >= first);
  }
  MW_TRY(ReadLayerTypes(json, config));
  constexpr int64_t kUsual = 4096;
  MW_TRY(ReadSlidingWindow(json, kUsual, config));
  const bool any =
      std::find(config.windowed.begin(), config.windowed.end(), true) != config.windowed.end();
  if (!any) {
    config.attention_window = 0;
    config.windowed = {true};
  }
  return OkStatus();
}

void WriteQwenWindow(const LlamaConfig& config, HfWriter& json) {
  json.Set("use_sliding_window", config.attention_window > 0);
  json.Remove("max_window_layers");
  WriteSlidingWindow(config, json);
  WriteLayerTypes(config, json);
}

Status ReadAttentionBias(const HfConfig& json, LlamaConfig& config) {
  MW_TRY(json.Read("attention_bias", config.attention_bias));
  config.output_bias = config.attention_bias;
  return OkStatus();
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

// What LLaMA and its kin have.
Status ApplySpec(const std::string& family, const ModelSpec& spec, LlamaConfig& config) {
  MW_TRY(RefuseExperts(family, spec.mixture));
  MW_TRY(RefuseField(family, "max_seq_len", spec.positions.has_value()));
  MW_TRY(RefuseField(family, "dropout", spec.dropout.value_or(0) != 0));
  MW_TRY(RefuseField(family, "n_kv_heads", config.latent.any() && spec.kv_heads.has_value()));
  OverrideSizes(spec, config);
  Override(config.inner, spec.inner);
  Override(config.kv_heads, spec.kv_heads);
  Override(config.rope_base, spec.rope_base);
  Override(config.attention_window, spec.attention_window);
  return OkStatus();
}

Model ModelOf(const std::string& family, const LlamaConfig& config) {
  Model model;
  model.name = family;
  model.functions = MakeLlama(config);
  model.layers = config.layers;
  model.vocabulary = config.vocabulary;
  model.max_sequence = config.positions;
  model.param_count = ParamCount(config);
  model.summary = SummaryOf(model, fmt::format("width {}, {} heads, {} kv heads", config.width,
                                               config.heads, config.kv_head_count()));
  model.sizes = SizesOf(config);
  return model;
}

LlamaConfig SmallLlama() {
  return {.vocabulary = 256, .width = 64, .inner = 176, .layers = 2, .heads = 4, .kv_heads = 2};
}

std::vector<FamilyRow<LlamaConfig>> LlamaLine() {
  return {LlamaFamily(), MistralFamily(), Qwen2Family(),  Qwen3Family(), Phi3Family(),
          GemmaFamily(), Gemma2Family(),  Gemma3Family(), Olmo2Family()};
}

Result<LlamaConfig> LlamaConfigFromHf(const std::string& json_text) {
  MW_ASSIGN_OR_RETURN(const HfConfig json, HfConfig::Parse(json_text));
  std::string type = "llama";
  MW_TRY(json.Read("model_type", type));
  for (const FamilyRow<LlamaConfig>& row : LlamaLine()) {
    if (type != row.type) continue;
    MW_ASSIGN_OR_RETURN(LlamaConfig config, ReadConfig(row, json));
    MW_TRY(Validate(config));
    return config;
  }
  return Fail(
      Unimplemented(fmt::format("config.json: model_type '{}' is none of LLaMA's line", type)));
}

}  // namespace meshwright::models
