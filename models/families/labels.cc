#include "models/families/labels.h"

#include <fmt/format.h>

#include <set>

namespace meshwright::models {

Status ReadLabels(const HfConfig& json, int64_t& labels, std::vector<std::string>& names) {
  labels = json.Members("id2label") > 0 ? json.Members("id2label") : 2;
  MW_TRY(json.Read("num_labels", labels));
  std::string problem = "single_label_classification";
  MW_TRY(json.Read("problem_type", problem));
  if (problem != "single_label_classification") {
    return Unimplemented(fmt::format(
        "config.json: problem_type '{}' is not supported; only single_label_classification",
        problem));
  }
  if (json.Members("id2label") != labels) return OkStatus();
  for (int64_t i = 0; i < labels; ++i) {
    std::string name;
    MW_TRY(json.Read(fmt::format("id2label.{}", i), name));
    names.push_back(std::move(name));
  }
  return OkStatus();
}

Status NameLabels(const ModelSpec& spec, int64_t labels, std::vector<std::string>& names) {
  if (spec.label_names.empty()) return OkStatus();
  const std::set<std::string> distinct(spec.label_names.begin(), spec.label_names.end());
  if (std::ssize(spec.label_names) != labels || distinct.size() != spec.label_names.size()) {
    return InvalidArgument(
        fmt::format("label_names has {} names, {} of them distinct, and the model {} classes",
                    spec.label_names.size(), distinct.size(), labels));
  }
  names = spec.label_names;
  return OkStatus();
}

void WriteLabels(int64_t labels, const std::vector<std::string>& names, HfWriter& json) {
  json.Remove("num_labels");
  json.Clear("id2label");
  json.Clear("label2id");
  for (int64_t i = 0; i < labels; ++i) {
    const bool named = static_cast<int64_t>(names.size()) == labels;
    const std::string name = named ? names[static_cast<size_t>(i)] : fmt::format("LABEL_{}", i);
    json.Set(fmt::format("id2label.{}", i), name.c_str());
    json.SetIn("label2id", name, i);
  }
}

}  // namespace meshwright::models
