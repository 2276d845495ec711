// ViT's row; its formulas are models/vit.h. What an image processor does to pixels is in a folder's
// preprocessor_config.json, whose keys stand beside those of config.json here.
#include "models/vit.h"

#include <fmt/format.h>

#include "models/families/families.h"
#include "models/families/labels.h"

namespace meshwright::models {
namespace {

std::map<std::string, VitConfig> VitFlavors() {
  return {{"debug", {.image = 32, .patch = 8, .width = 64, .inner = 256, .layers = 2, .heads = 4}},
          {"base", {}},
          {"large", {.width = 1024, .inner = 4096, .layers = 24, .heads = 16}},
          {"huge", {.patch = 14, .width = 1280, .inner = 5120, .layers = 32, .heads = 16}}};
}

Status ReadVit(const HfConfig& json, VitConfig& config) {
  std::string activation = "gelu";
  MW_TRY(json.Read("hidden_act", activation));
  MW_ASSIGN_OR_RETURN(config.activation, ParseActivation("hidden_act", activation));
  MW_TRY(json.Read("image_mean", config.mean));
  MW_TRY(json.Read("image_std", config.deviation));
  return ReadLabels(json, config.labels, config.label_names);
}

void WriteVit(const VitConfig& config, HfWriter& json) {
  json.Set("architectures", std::vector<std::string>{"ViTForImageClassification"});
  json.Set("hidden_act", ActivationName(config.activation));
  if (!config.mean.empty()) json.Set("image_mean", config.mean);
  if (!config.deviation.empty()) json.Set("image_std", config.deviation);
  for (const char* token : {"bos_token_id", "eos_token_id", "pad_token_id"}) json.Remove(token);
  WriteLabels(config.labels, config.label_names, json);
}

FamilyRow<VitConfig> VitRow() {
  return {.name = "vit",
          .type = "vit",
          .architecture = "ViTForImageClassification",
          .flavors = VitFlavors,
          .defaults = [] { return VitConfig(); },
          .keys = {{"image_size", &VitConfig::image},
                   {"patch_size", &VitConfig::patch},
                   {"num_channels", &VitConfig::channels},
                   {"hidden_size", &VitConfig::width, true},
                   {"intermediate_size", &VitConfig::inner, true},
                   {"num_hidden_layers", &VitConfig::layers, true},
                   {"num_attention_heads", &VitConfig::heads, true},
                   {"qkv_bias", &VitConfig::biases},
                   {"hidden_dropout_prob", &VitConfig::dropout},
                   {"attention_probs_dropout_prob", &VitConfig::attention_dropout},
                   {"layer_norm_eps", &VitConfig::epsilon}},
          .read = ReadVit,
          .write = WriteVit};
}

}  // namespace

Status ApplySpec(const std::string& family, const ModelSpec& spec, VitConfig& config) {
  MW_TRY(RefuseExperts(family, spec.mixture));
  MW_TRY(RefuseField(family, "vocab_size", spec.vocabulary.has_value()));
  MW_TRY(RefuseField(family, "n_kv_heads", spec.kv_heads.has_value()));
  MW_TRY(RefuseField(family, "max_seq_len", spec.positions.has_value()));
  MW_TRY(RefuseField(family, "rope_theta", spec.rope_base.has_value()));
  MW_TRY(RefuseField(family, "attention_window", spec.attention_window.value_or(0) != 0));
  MW_TRY(RefuseField(family, "tie_embeddings", spec.tied.has_value()));
  MW_TRY(RefuseField(family, "document_separator", spec.document_separator.value_or(-1) >= 0));
  MW_TRY(RefuseField(family, "mask_token", spec.mask_token.has_value()));
  Override(config.width, spec.width);
  Override(config.layers, spec.layers);
  Override(config.heads, spec.heads);
  Override(config.epsilon, spec.epsilon);
  Override(config.inner, spec.inner);
  Override(config.dropout, spec.dropout);
  Override(config.attention_dropout, spec.dropout);
  Override(config.image, spec.image);
  Override(config.patch, spec.patch);
  if (spec.labels && *spec.labels != config.labels) {
    config.labels = *spec.labels;
    config.label_names.clear();
  }
  return NameLabels(spec, config.labels, config.label_names);
}

Model ModelOf(const std::string& family, const VitConfig& config) {
  Model model;
  model.name = family;
  model.functions = MakeVit(config);
  model.layers = config.layers;
  model.param_count = ParamCount(config);
  model.summary = fmt::format(
      "{}: {} layers, width {}, {} heads, images of {} x {} in patches of {}, {} classes, {:.2f} M "
      "params",
      family, config.layers, config.width, config.heads, config.image, config.image, config.patch,
      config.labels, static_cast<double>(model.param_count) / 1e6);
  model.sizes.width = config.width;
  model.sizes.inner = config.inner;
  model.sizes.layers = config.layers;
  model.sizes.heads = config.heads;
  model.sizes.labels = config.labels;
  model.sizes.image = config.image;
  model.sizes.patch = config.patch;
  model.rows = {.kind = SampleKind::kImage,
                .labels = config.labels,
                .label_names = config.label_names,
                .channels = config.channels,
                .image = config.image};
  return model;
}

Family VitFamily() { return MakeFamily(VitRow()); }

}  // namespace meshwright::models
