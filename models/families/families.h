// The rows of the table that are a family of their own; those of LLaMA's line are in llama_line.h.
// Internal to models/.
//
// Thread rule: constant data and pure functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "models/family_row.h"

namespace meshwright::models {

Family Gpt2Family();
Family GptNeoxFamily();
Family GptjFamily();
Family OptFamily();
Family BertFamily();
Family T5Family();
std::vector<Family> MixtureFamilies();

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

}  // namespace meshwright::models
