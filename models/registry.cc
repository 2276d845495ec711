#include "models/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "models/family.h"
#include "models/hf_config.h"

namespace meshwright::models {
namespace {

Result<Model> FromFolder(const ModelSpec& spec) {
  MW_ASSIGN_OR_RETURN(const HfConfig json, HfConfig::Parse(*spec.hf_config));
  std::string type;
  MW_TRY(json.Require({"model_type"}));
  MW_TRY(json.Read("model_type", type));
  std::vector<std::string> known;
  for (const Family& family : Families()) {
    if (family.type.empty()) continue;
    if (family.type == type) return family.of_folder(json, spec);
    known.push_back(family.type);
  }
  return Fail(Unimplemented(fmt::format("config.json: model_type '{}' is not supported; known: {}",
                                        type, fmt::join(known, ", "))));
}

}  // namespace

std::string LabelName(const ModelRows& rows, int64_t label) {
  const auto at = static_cast<size_t>(label);
  return at < rows.label_names.size() ? rows.label_names[at] : std::to_string(label);
}

Result<Model> MakeModel(const ModelSpec& spec) {
  if (spec.hf_config) return FromFolder(spec);
  for (const Family& family : Families()) {
    if (family.name == spec.name) return family.of_flavor(spec);
  }
  return Fail(InvalidArgument(
      fmt::format("unknown model '{}'; known: {}", spec.name, fmt::join(ModelNames(), ", "))));
}

std::vector<std::string> ModelNames() {
  std::vector<std::string> names;
  for (const Family& family : Families()) names.push_back(family.name);
  return names;
}

std::vector<std::string> Flavors(const std::string& model_name) {
  for (const Family& family : Families()) {
    if (family.name == model_name) return family.flavors;
  }
  return {};
}

}  // namespace meshwright::models
