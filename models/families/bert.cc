// BERT's row; its formulas are models/bert.h. One model_type has two heads: a folder says which by
// its architecture, a job by model.n_labels.
#include "models/bert.h"

#include <fmt/format.h>

#include "models/families/families.h"
#include "models/families/labels.h"

namespace meshwright::models {
namespace {

constexpr char kMasked[] = "BertForMaskedLM";
constexpr char kClassifier[] = "BertForSequenceClassification";

std::map<std::string, BertConfig> BertFlavors() {
  return {{"debug",
           {.vocabulary = 264,
            .positions = 256,
            .width = 64,
            .inner = 256,
            .layers = 2,
            .heads = 4,
            .padding = 0,
            .mask_token = 263}},
          {"base", {.dropout = 0.1, .attention_dropout = 0.1, .padding = 0}},
          {"large",
           {.width = 1024,
            .inner = 4096,
            .layers = 24,
            .heads = 16,
            .dropout = 0.1,
            .attention_dropout = 0.1,
            .padding = 0}}};
}

Status ReadHead(const HfConfig& json, BertConfig& config) {
  std::vector<std::string> architectures;
  MW_TRY(json.Read("architectures", architectures));
  if (architectures.empty() || architectures[0] != kClassifier) return OkStatus();
  return ReadLabels(json, config.labels, config.label_names);
}

Status ReadBert(const HfConfig& json, BertConfig& config) {
  MW_TRY(json.RefuseOther("is_decoder", false));
  MW_TRY(json.RefuseOther("add_cross_attention", false));
  MW_TRY(json.RefuseOther("tie_word_embeddings", true));
  std::string positions = "absolute";
  MW_TRY(json.Read("position_embedding_type", positions));
  if (positions != "absolute") {
    return Unimplemented(fmt::format(
        "config.json: position_embedding_type '{}' is not supported; only absolute", positions));
  }
  // BERT's own, where the vocabulary has it: a model that is asked needs none.
  const bool knows_mask = json.Has("mask_token_id") || config.mask_token < config.vocabulary;
  if (!knows_mask) config.mask_token = -1;
  config.padding = json.IsNull("pad_token_id") ? -1 : 0;
  MW_TRY(json.Read("pad_token_id", config.padding));
  std::string activation = "gelu";
  MW_TRY(json.Read("hidden_act", activation));
  MW_ASSIGN_OR_RETURN(config.activation, ParseActivation("hidden_act", activation));
  return ReadHead(json, config);
}

void WriteBert(const BertConfig& config, HfWriter& json) {
  const bool classifies = config.labels > 0;
  json.Set("architectures", std::vector<std::string>{classifies ? kClassifier : kMasked});
  json.Set("hidden_act", ActivationName(config.activation));
  if (config.padding < 0) {
    json.SetNull("pad_token_id");
  } else {
    json.Set("pad_token_id", config.padding);
  }
  if (config.classifier_dropout < 0) {
    json.Remove("classifier_dropout");
  } else {
    json.Set("classifier_dropout", config.classifier_dropout);
  }
  if (classifies) WriteLabels(config.labels, config.label_names, json);
  if (classifies || config.mask_token < 0) json.Remove("mask_token_id");
}

FamilyRow<BertConfig> BertRow() {
  return {.name = "bert",
          .type = "bert",
          .architecture = kMasked,
          .flavors = BertFlavors,
          .defaults = [] { return BertConfig{.dropout = 0.1, .attention_dropout = 0.1}; },
          .keys = {{"vocab_size", &BertConfig::vocabulary, true},
                   {"max_position_embeddings", &BertConfig::positions, true},
                   {"hidden_size", &BertConfig::width, true},
                   {"intermediate_size", &BertConfig::inner, true},
                   {"num_hidden_layers", &BertConfig::layers, true},
                   {"num_attention_heads", &BertConfig::heads, true},
                   {"type_vocab_size", &BertConfig::types},
                   {"hidden_dropout_prob", &BertConfig::dropout},
                   {"attention_probs_dropout_prob", &BertConfig::attention_dropout},
                   {"classifier_dropout", &BertConfig::classifier_dropout},
                   {"layer_norm_eps", &BertConfig::epsilon},
                   // No key of transformers, whose tokenizers know it.
                   {"mask_token_id", &BertConfig::mask_token}},
          .read = ReadBert,
          .write = WriteBert};
}

}  // namespace

Status ApplySpec(const std::string& family, const ModelSpec& spec, BertConfig& config) {
  MW_TRY(RefuseExperts(family, spec.mixture));
  MW_TRY(RefuseField(family, "n_kv_heads", spec.kv_heads.has_value()));
  MW_TRY(RefuseField(family, "rope_theta", spec.rope_base.has_value()));
  MW_TRY(RefuseField(family, "attention_window", spec.attention_window.value_or(0) != 0));
  OverrideSizes(spec, config);
  Override(config.hidden_share, spec.hidden_share);
  Override(config.inner, spec.inner);
  Override(config.positions, spec.positions);
  Override(config.dropout, spec.dropout);
  Override(config.attention_dropout, spec.dropout);
  Override(config.mask_token, spec.mask_token);
  if (spec.labels && *spec.labels != config.labels) {
    config.labels = *spec.labels;
    config.label_names.clear();
  }
  return NameLabels(spec, config.labels, config.label_names);
}

Model ModelOf(const std::string& family, const BertConfig& config) {
  Model model = BareModel(family, config, MakeBert(config));
  model.max_sequence = config.positions;
  model.sizes.inner = config.inner;
  model.sizes.positions = config.positions;
  if (config.labels == 0) {
    if (config.mask_token >= 0) model.sizes.mask_token = config.mask_token;
    return model;
  }
  model.sizes.labels = config.labels;
  model.rows = {.kind = SampleKind::kLabelled,
                .padding = config.padding < 0 ? 0 : config.padding,
                .labels = config.labels,
                .label_names = config.label_names};
  return model;
}

Family BertFamily() { return MakeFamily(BertRow()); }

}  // namespace meshwright::models
