// The rows of the table that are a family of their own; those of LLaMA's line are in llama_line.h.
// Internal to models/.
//
// Thread rule: constant data and pure functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "models/activation.h"
#include "models/family_row.h"

namespace meshwright::models {

Family Gpt2Family();
std::vector<Family> DecoderFamilies();
Family BertFamily();
Family T5Family();
Family BartFamily();
Family VitFamily();
std::vector<Family> MixtureFamilies();

// The curve of an MLP under `key`; `usual` where it is absent. Errors: as ParseActivation.
Result<Activation> ReadActivation(const HfConfig& json, const char* key, const char* usual);

// What all configs have under equal names.
template <typename Config>
void OverrideSizes(const ModelSpec& spec, Config& config) {
  Override(config.vocabulary, spec.vocabulary);
  Override(config.width, spec.width);
  Override(config.layers, spec.layers);
  Override(config.heads, spec.heads);
  Override(config.epsilon, spec.epsilon);
  Override(config.tied, spec.tied);
  Override(config.document_separator, spec.document_separator);
}

// What a job file may say of a dense family, beside what all have.
struct DenseWords {
  bool kv_heads = false;
  bool positions = true;  // of a table, or a limit that the family's own keys say
  bool rope_base = false;
};

// Errors: kInvalidArgument naming what the family does not have.
Status RefuseOthers(const std::string& family, const ModelSpec& spec, const DenseWords& words);

// What dense families with three rates of dropout have under equal names.
template <typename Config>
Status ApplyDense(const std::string& family, const ModelSpec& spec, const DenseWords& words,
                  Config& config) {
  MW_TRY(RefuseOthers(family, spec, words));
  OverrideSizes(spec, config);
  Override(config.inner, spec.inner);
  Override(config.positions, spec.positions);
  Override(config.embedding_dropout, spec.dropout);
  Override(config.residual_dropout, spec.dropout);
  Override(config.attention_dropout, spec.dropout);
  return OkStatus();
}

// A model with what all configs say under equal names.
template <typename Config>
Model BareModel(const std::string& family, const Config& config,
                client::TrainerFunctions functions) {
  Model model;
  model.name = family;
  model.functions = std::move(functions);
  model.layers = config.layers;
  model.vocabulary = config.vocabulary;
  model.param_count = ParamCount(config);
  model.summary = SummaryOf(model, fmt::format("width {}, {} heads", config.width, config.heads));
  model.sizes.vocabulary = config.vocabulary;
  model.sizes.width = config.width;
  model.sizes.layers = config.layers;
  model.sizes.heads = config.heads;
  model.sizes.document_separator = config.document_separator;
  return model;
}

// What families with an encoder and a decoder have under equal names.
template <typename Config>
void OverridePair(const ModelSpec& spec, Config& config) {
  OverrideSizes(spec, config);
  Override(config.inner, spec.inner);
  Override(config.dropout, spec.dropout);
  Override(config.target_tokens, spec.target_tokens);
  Override(config.hidden_share, spec.hidden_share);
  Override(config.mean_span, spec.mean_span);
}

template <typename Config>
Model PairModelOf(const std::string& family, const Config& config,
                  client::TrainerFunctions functions) {
  Model model = BareModel(family, config, std::move(functions));
  model.layers = config.all_layers();
  model.summary = SummaryOf(model, fmt::format("width {}, {} heads", config.width, config.heads));
  model.sizes.inner = config.inner;
  model.rows = {.kind = SampleKind::kPair,
                .target_tokens = config.target_tokens,
                .padding = config.padding,
                .hidden_share = config.hidden_share,
                .mean_span = config.mean_span};
  return model;
}

// BareModel of a dense family.
template <typename Config>
Model DenseModel(const std::string& family, const Config& config, const DenseWords& words,
                 client::TrainerFunctions functions) {
  Model model = BareModel(family, config, std::move(functions));
  model.max_sequence = config.positions;
  model.sizes.inner = config.inner_width();
  if (words.positions) model.sizes.positions = config.positions;
  return model;
}

}  // namespace meshwright::models
