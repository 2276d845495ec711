#include "config/data_sets.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <set>

#include "base/text.h"

namespace meshwright::config {
namespace {

// Weights are whole numbers of this share of one.
constexpr double kWeightUnits = 1e6;

std::string Trimmed(std::string_view text) { return std::string(Trim(text)); }

Status Wrong(const char* key, const std::string& entry, const std::string& why) {
  return InvalidArgument(fmt::format("{}: \"{}\" {}", key, entry, why));
}

Result<int64_t> WeightOf(const std::string& text) {
  double weight = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), weight);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || !(weight >= 1 / kWeightUnits && weight <= kWeightUnits)) {
    return Fail(InvalidArgument(fmt::format("has the weight {}; it is 0.000001 to 1000000", text)));
  }
  return static_cast<int64_t>(std::llround(weight * kWeightUnits));
}

// "weight=3, format=text".
Status ReadOptions(const std::string& text, bool weighs, DataSet& set) {
  for (const std::string& part : Split(text, ',')) {
    const size_t equals = part.find('=');
    const std::string name = Trimmed(part.substr(0, equals));
    const std::string value = equals == part.npos ? "" : Trimmed(part.substr(equals + 1));
    if (name == "weight" && weighs) {
      MW_ASSIGN_OR_RETURN(set.weight, WeightOf(value));
    } else if (name == "format" && !value.empty()) {
      set.format = value;
    } else {
      return InvalidArgument(fmt::format("says '{}'; known: {}format=FORMAT", Trimmed(part),
                                         weighs ? "weight=NUMBER, " : ""));
    }
  }
  return OkStatus();
}

// The options of an entry are what stands behind its last ": ".
Result<DataSet> ParseSet(const JobConfig& config, const char* key, std::string entry, bool named) {
  const std::string all = entry;
  DataSet set;
  set.format = config.dataset_format;
  set.weight = static_cast<int64_t>(kWeightUnits);
  if (named) {
    const size_t colon = entry.find(':');
    if (colon == entry.npos) return Fail(Wrong(key, all, "has no name: write \"NAME: PATH\""));
    set.name = Trimmed(entry.substr(0, colon));
    entry = entry.substr(colon + 1);
    const bool plain = !set.name.empty() && set.name.find_first_of(" /\"") == std::string::npos;
    if (!plain) return Fail(Wrong(key, all, "has a name with a space, a slash or a quote"));
  }
  const size_t colon = entry.rfind(": ");
  set.path = Trimmed(entry.substr(0, colon));
  if (set.path.empty()) return Fail(Wrong(key, all, "names no path"));
  if (colon != entry.npos) {
    const Status read = ReadOptions(entry.substr(colon + 2), !named, set);
    if (!read.ok()) return Fail(Wrong(key, all, read.message()));
  }
  if (!named) set.name = set.path;
  return set;
}

Result<std::vector<DataSet>> ParseSets(const JobConfig& config, const char* key,
                                       const std::vector<std::string>& entries, bool named) {
  std::vector<DataSet> sets;
  std::set<std::string> names;
  for (const std::string& entry : entries) {
    MW_ASSIGN_OR_RETURN(DataSet set, ParseSet(config, key, entry, named));
    if (!names.insert(set.name).second) return Fail(Wrong(key, entry, "is there twice"));
    sets.push_back(std::move(set));
  }
  return sets;
}

Status RefuseBoth(const char* path, const std::string& value, const char* key,
                  const std::vector<std::string>& entries) {
  if (value.empty() || entries.empty()) return OkStatus();
  return InvalidArgument(fmt::format(
      "{} = \"{}\" and {} both say what is read; take one of them out", path, value, key));
}

}  // namespace

Result<std::vector<DataSet>> TrainingSets(const JobConfig& config) {
  MW_TRY(RefuseBoth("training.dataset_path", config.dataset_path, "training.datasets",
                    config.datasets));
  if (!config.datasets.empty()) {
    return ParseSets(config, "training.datasets", config.datasets, false);
  }
  if (config.dataset_path.empty()) return std::vector<DataSet>();
  return std::vector<DataSet>{{config.dataset_path, config.dataset_path, config.dataset_format}};
}

Result<std::vector<DataSet>> ValidationSets(const JobConfig& config) {
  MW_TRY(RefuseBoth("validation.dataset_path", config.validation_path, "validation.datasets",
                    config.validation_datasets));
  if (!config.validation_datasets.empty()) {
    return ParseSets(config, "validation.datasets", config.validation_datasets, true);
  }
  if (config.validation_path.empty()) return std::vector<DataSet>();
  return std::vector<DataSet>{
      {config.validation_path, config.validation_path, config.dataset_format}};
}

}  // namespace meshwright::config
