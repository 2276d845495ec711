#include "config/config_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "config/key_sections.h"

namespace meshwright::config {
namespace {

std::vector<ConfigKey> AllKeys() {
  std::vector<ConfigKey> keys = JobAndModelKeys();
  for (auto part : {MixtureKeys(), OptimizerKeys(), TrainingKeys(), PrecisionKeys(), TuningKeys(),
                    LoraKeys(), ParallelismKeys(), PipelineKeys(), ShardingKeys(), DeviceKeys(),
                    RunKeys(), CheckpointKeys(), FaultAndMetricsKeys()}) {
    keys.insert(keys.end(), part.begin(), part.end());
  }
  return keys;
}

std::string QuoteToml(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

// Shortest form that reads back equal and is a TOML float.
std::string FormatReal(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".einf") == std::string::npos) text += ".0";
  return text;
}

struct ValueFormatter {
  std::string operator()(const int64_t* value) const { return fmt::format("{}", *value); }
  std::string operator()(const uint64_t* value) const { return fmt::format("{}", *value); }
  std::string operator()(const double* value) const { return FormatReal(*value); }
  std::string operator()(const bool* value) const { return *value ? "true" : "false"; }
  std::string operator()(const std::string* value) const { return QuoteToml(*value); }
  std::string operator()(const std::vector<std::string>* value) const {
    std::vector<std::string> quoted;
    for (const std::string& each : *value) quoted.push_back(QuoteToml(each));
    return fmt::format("[{}]", fmt::join(quoted, ", "));
  }
  template <typename T>
  std::string operator()(const std::optional<T>* value) const {
    if (!*value) return "";
    const T present = **value;
    return (*this)(&present);
  }
};

struct TypeNamer {
  std::string operator()(const int64_t*) const { return "an integer"; }
  std::string operator()(const uint64_t*) const { return "an integer"; }
  std::string operator()(const double*) const { return "a number"; }
  std::string operator()(const bool*) const { return "true or false"; }
  std::string operator()(const std::string*) const { return "text"; }
  std::string operator()(const std::vector<std::string>*) const { return "a list of texts"; }
  template <typename T>
  std::string operator()(const std::optional<T>*) const {
    return (*this)(static_cast<const T*>(nullptr));
  }
};

}  // namespace

const std::vector<ConfigKey>& ConfigKeys() {
  static const std::vector<ConfigKey> keys = AllKeys();
  return keys;
}

std::vector<std::string> SectionNames() {
  std::vector<std::string> names;
  for (const ConfigKey& key : ConfigKeys()) {
    if (names.empty() || names.back() != key.section) names.emplace_back(key.section);
  }
  return names;
}

std::vector<std::string> KeyNames(std::string_view section) {
  std::vector<std::string> names;
  for (const ConfigKey& key : ConfigKeys()) {
    if (key.section == section) names.emplace_back(key.name);
  }
  return names;
}

const ConfigKey* FindKey(std::string_view section, std::string_view name) {
  const auto& keys = ConfigKeys();
  const auto it = std::find_if(keys.begin(), keys.end(), [&](const ConfigKey& key) {
    return key.section == section && key.name == name;
  });
  return it == keys.end() ? nullptr : &*it;
}

const ConfigKey* KeyOfField(std::string_view field) {
  const auto& keys = ConfigKeys();
  const auto it = std::find_if(keys.begin(), keys.end(),
                               [&](const ConfigKey& key) { return key.bind.field == field; });
  return it == keys.end() ? nullptr : &*it;
}

std::string WantedType(const ConfigKey& key) {
  if (key.kind == KeyKind::kDegree) return "an integer >= 1, -1 or \"auto\"";
  if (key.kind == KeyKind::kStage) return "an integer >= 0, -1 or \"auto\"";
  if (key.kind == KeyKind::kSwitch) return "true, false or \"auto\"";
  if (key.kind == KeyKind::kChoice) return fmt::format("one of: {}", fmt::join(key.choices, ", "));
  JobConfig scratch;
  return std::visit(TypeNamer(), key.bind(scratch));
}

std::string FormatValue(const ConfigKey& key, const JobConfig& config) {
  JobConfig copy = config;
  const Binding binding = key.bind(copy);
  if (key.kind == KeyKind::kDegree && **std::get_if<int64_t*>(&binding) == 0) return "\"auto\"";
  if (key.kind == KeyKind::kStage && **std::get_if<int64_t*>(&binding) == -1) return "\"auto\"";
  if (key.kind == KeyKind::kSwitch && !**std::get_if<std::optional<bool>*>(&binding)) {
    return "\"auto\"";
  }
  return std::visit([](const auto* at) { return ValueFormatter()(at); }, binding);
}

}  // namespace meshwright::config
