// How a row of the table of families is made of a family's own config type: its keys, sizes and
// what is more than a key. Internal to models/.
//
// A Config has, beside its formulas, these functions:
//   Status ApplySpec(const std::string& family, const ModelSpec& spec, Config& config);
//   Status Validate(const Config& config);
//   Model ModelOf(const std::string& family, const Config& config);
//
// Thread rule: constant data and pure functions.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "models/family.h"
#include "models/hf_config.h"
#include "models/hf_writer.h"

namespace meshwright::models {

// A key of a config.json that is a field, which a pointer to a member says or a function. "a|b":
// two names, of which a is read last and written. A whole number of 0 is what an absent key means.
template <typename Config>
struct HfKey {
  std::string name;
  std::variant<std::function<int64_t&(Config&)>, std::function<double&(Config&)>,
               std::function<bool&(Config&)>>
      field;
  bool wanted = false;  // it has no default

  std::vector<std::string> names() const {
    const size_t bar = name.find('|');
    if (bar == std::string::npos) return {name};
    return {name.substr(bar + 1), name.substr(0, bar)};
  }
};

template <typename Config>
struct FamilyRow {
  const char* name;
  const char* type = "";
  const char* architecture = "";
  std::map<std::string, Config> (*flavors)();
  Config (*defaults)() = nullptr;  // what absent keys mean
  std::vector<HfKey<Config>> keys = {};
  // What is more than a key: forms of their own, and what is refused.
  Status (*read)(const HfConfig& json, Config& config) = nullptr;
  void (*write)(const Config& config, HfWriter& json) = nullptr;
  // Whether a config.json can say all of it; null: always.
  bool (*says)(const Config& config) = nullptr;
  bool pads = false;  // transformers gives the row of pad_token_id no gradient
};

// What is said counts.
template <typename T>
void Override(T& field, const std::optional<T>& value) {
  if (value) field = *value;
}
// Errors: kInvalidArgument naming what `model` does not have.
Status RefuseField(const std::string& model, const char* field, bool set);
Status RefuseExperts(const std::string& model, const MixtureSpec& spec);

// "gpt2: 4 layers, SIZES, vocabulary 256, 1.86 M params".
std::string SummaryOf(const Model& model, const std::string& sizes);

// Errors: as models::MakeModel.
template <typename Config>
Result<Config> ReadConfig(const FamilyRow<Config>& row, const HfConfig& json) {
  Config config = row.defaults();
  MW_TRY(json.RefuseKey("quantization_config", kQuantizationFix));
  for (const HfKey<Config>& key : row.keys) {
    if (key.wanted) MW_TRY(json.RequireKey(key.name));
  }
  for (const HfKey<Config>& key : row.keys) {
    for (const std::string& name : key.names()) {
      MW_TRY(std::visit([&](const auto& of) { return json.Read(name, of(config)); }, key.field));
    }
  }
  MW_TRY(row.read(json, config));
  return config;
}

// The config.json of a model; had: that of its folder, or "".
template <typename Config>
std::string WriteConfig(const FamilyRow<Config>& row, Config config, const std::string& had) {
  if (row.write == nullptr || (row.says != nullptr && !row.says(config))) return "";
  HfWriter json(had);
  if (json.empty()) {
    // Else transformers has its own tokens in their place.
    json.Set("architectures", std::vector<std::string>{row.architecture});
    for (const char* token : {"bos_token_id", "eos_token_id", "pad_token_id"}) json.SetNull(token);
  }
  json.Set("model_type", row.type);
  for (const HfKey<Config>& key : row.keys) {
    const std::vector<std::string> names = key.names();
    const std::string& name = names.back();
    if (names.size() > 1) json.Remove(names.front());
    const auto* whole = std::get_if<std::function<int64_t&(Config&)>>(&key.field);
    if (whole != nullptr && (*whole)(config) == 0) {
      json.Remove(name);
      continue;
    }
    std::visit([&](const auto& of) { json.Set(name, of(config)); }, key.field);
  }
  row.write(config, json);
  return json.Text();
}

// That of a padding token that the folder names. Errors: kInvalidArgument.
Status NotePadToken(const HfConfig& json, Model& model);

// Errors: kInvalidArgument naming what the family of `Config` does not have.
template <typename Config>
Status RefuseRowFields(const std::string& family, const ModelSpec& spec) {
  if constexpr (!requires(Config config) { config.labels; }) {
    MW_TRY(RefuseField(family, "n_labels", spec.labels.has_value()));
    MW_TRY(RefuseField(family, "label_names", !spec.label_names.empty()));
    MW_TRY(RefuseField(family, "mask_token", spec.mask_token.has_value()));
  }
  if constexpr (!requires(Config config) { config.target_tokens; }) {
    MW_TRY(RefuseField(family, "target_seq_len", spec.target_tokens.has_value()));
  }
  if constexpr (!requires(Config config) { config.hidden_share; }) {
    MW_TRY(RefuseField(family, "noise_density", spec.hidden_share.has_value()));
  }
  if constexpr (!requires(Config config) { config.mean_span; }) {
    MW_TRY(RefuseField(family, "mean_span_length", spec.mean_span.has_value()));
  }
  if constexpr (!requires(Config config) { config.image; }) {
    MW_TRY(RefuseField(family, "image_size", spec.image.has_value()));
    MW_TRY(RefuseField(family, "patch_size", spec.patch.has_value()));
  }
  return OkStatus();
}

template <typename Config>
Result<Model> FinishModel(const FamilyRow<Config>& row, Config config, const ModelSpec& spec) {
  MW_TRY(RefuseRowFields<Config>(row.name, spec));
  MW_TRY(ApplySpec(row.name, spec, config));
  MW_TRY(Validate(config));
  Model model = ModelOf(row.name, config);
  model.hf_config = WriteConfig(row, config, spec.hf_config.value_or(""));
  return model;
}

template <typename Config>
Result<Model> FromFlavor(const FamilyRow<Config>& row, const ModelSpec& spec) {
  const std::map<std::string, Config> flavors = row.flavors();
  const auto it = flavors.find(spec.flavor.empty() ? "debug" : spec.flavor);
  if (it != flavors.end()) return FinishModel(row, it->second, spec);
  std::vector<std::string> known;
  for (const auto& [name, config] : flavors) known.push_back(name);
  return Fail(InvalidArgument(fmt::format("model '{}' has no flavor '{}'; known: {}", row.name,
                                          spec.flavor, fmt::join(known, ", "))));
}

template <typename Config>
Family MakeFamily(FamilyRow<Config> row) {
  Family family{.name = row.name, .type = row.type};
  for (const auto& [name, config] : row.flavors()) family.flavors.push_back(name);
  for (const HfKey<Config>& key : row.keys) {
    for (std::string& name : key.names()) family.keys.push_back(std::move(name));
  }
  family.of_flavor = [row](const ModelSpec& spec) { return FromFlavor(row, spec); };
  if (family.type.empty()) return family;
  family.of_folder = [row](const HfConfig& json, const ModelSpec& spec) -> Result<Model> {
    MW_ASSIGN_OR_RETURN(Config config, ReadConfig(row, json));
    MW_ASSIGN_OR_RETURN(Model model, FinishModel(row, std::move(config), spec));
    if (row.pads) MW_TRY(NotePadToken(json, model));
    return model;
  };
  return family;
}

}  // namespace meshwright::models
