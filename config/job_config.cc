#include "config/job_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "base/file.h"
#include "base/text.h"
#include "config/config_errors.h"
#include "config/config_keys.h"
#include "config/foreign_keys.h"
#include "config/key_ranges.h"
#include "config/resolve_config.h"
#include "data/paths.h"

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 1
// Its assertions judge input: without them a key that is none is an error as any other.
#define TOML_ASSERT(expression) static_cast<void>(0)
#include <toml++/toml.h>

#include <sstream>

namespace meshwright::config {
namespace {

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string Position(const std::string& file, const toml::source_region& region) {
  return fmt::format("{}:{}:{}", file, region.begin.line, region.begin.column);
}

std::string ValueText(const toml::node& node) {
  if (node.is_floating_point()) return fmt::format("{}", *node.value<double>());
  std::ostringstream out;
  node.visit([&](const auto& value) { out << value; });
  return out.str();
}

// toml++ does not convert an integer that a double cannot hold exactly.
double NumberOf(const toml::node& node) {
  return node.is_integer() ? static_cast<double>(*node.value<int64_t>()) : *node.value<double>();
}

// Stores a TOML value where a key's binding points; false when the type does not fit.
struct Setter {
  const toml::node& node;

  bool operator()(int64_t* at) const {
    return Integer([&](int64_t v) { *at = v; });
  }
  bool operator()(uint64_t* at) const {
    return Integer([&](int64_t v) { *at = static_cast<uint64_t>(v); });
  }
  bool operator()(double* at) const {
    // An integer is a number; text and booleans are not.
    if (!node.is_number()) return false;
    *at = NumberOf(node);
    return true;
  }
  bool operator()(bool* at) const {
    if (!node.is_boolean()) return false;
    *at = *node.value<bool>();
    return true;
  }
  bool operator()(std::string* at) const {
    if (!node.is_string()) return false;
    *at = *node.value<std::string>();
    return true;
  }
  // A text alone is a list of one; "a,b" is one of two, as on a command line.
  bool operator()(std::vector<std::string>* at) const {
    at->clear();
    if (node.is_string()) {
      for (const std::string& part : Split(*node.value<std::string>(), ',')) {
        if (!Trim(part).empty()) at->emplace_back(Trim(part));
      }
      return true;
    }
    if (!node.is_array()) return false;
    for (const toml::node& each : *node.as_array()) {
      if (!each.is_string()) return false;
      at->push_back(*each.value<std::string>());
    }
    return true;
  }
  template <typename T>
  bool operator()(std::optional<T>* at) const {
    T value = {};
    if (!(*this)(&value)) return false;
    *at = value;
    return true;
  }

 private:
  template <typename Store>
  bool Integer(Store store) const {
    if (!node.is_integer()) return false;
    store(*node.value<int64_t>());
    return true;
  }
};

bool SetDegree(int64_t* at, const toml::node& node) {
  if (node.is_string()) {
    *at = 0;
    return *node.value<std::string>() == "auto";
  }
  if (!node.is_integer()) return false;
  const int64_t value = *node.value<int64_t>();
  *at = value == -1 ? 0 : value;
  return value == -1 || value >= 1;
}

bool SetStage(int64_t* at, const toml::node& node) {
  if (node.is_string()) {
    *at = -1;
    return *node.value<std::string>() == "auto";
  }
  if (!node.is_integer()) return false;
  *at = *node.value<int64_t>();
  return *at >= -1;
}

bool SetSwitch(std::optional<bool>* at, const toml::node& node) {
  *at = node.value<bool>();
  return node.is_boolean() || (node.is_string() && *node.value<std::string>() == "auto");
}

bool SetChoice(std::string* at, const ConfigKey& key, const toml::node& node) {
  if (!node.is_string()) return false;
  *at = Lower(*node.value<std::string>());
  return std::find(key.choices.begin(), key.choices.end(), *at) != key.choices.end();
}

Status SetKey(JobConfig& config, const ConfigKey& key, const toml::node& node,
              const std::string& where) {
  const Binding binding = key.bind(config);
  bool fits = false;
  if (key.kind == KeyKind::kDegree) {
    fits = SetDegree(std::get<int64_t*>(binding), node);
  } else if (key.kind == KeyKind::kStage) {
    fits = SetStage(std::get<int64_t*>(binding), node);
  } else if (key.kind == KeyKind::kSwitch) {
    fits = SetSwitch(std::get<std::optional<bool>*>(binding), node);
  } else if (key.kind == KeyKind::kChoice) {
    fits = SetChoice(std::get<std::string*>(binding), key, node);
  } else {
    fits = std::visit(Setter{node}, binding);
  }
  if (!fits) {
    std::string hint;
    if (node.is_string()) {
      const std::string value = *node.value<std::string>();
      hint = ForeignValueHint(key.section, key.name, value);
      if (hint.empty()) hint = DidYouMean(value, key.choices);
    }
    return InvalidArgument(fmt::format("{}: {}.{} must be {}, is {}{}", where, key.section,
                                       key.name, WantedType(key), ValueText(node), hint));
  }
  const KeyRange* range = FindRange(key.section, key.name);
  const bool may_be_auto = key.kind == KeyKind::kDegree || key.kind == KeyKind::kStage;
  const bool is_auto = may_be_auto && node.value_or<int64_t>(-1) == -1;
  if (range != nullptr && node.is_number() && !is_auto && !range->Has(NumberOf(node))) {
    return InvalidArgument(fmt::format("{}: {}.{} is {}; it must be {}", where, key.section,
                                       key.name, ValueText(node), range->ToString()));
  }
  config.origins[fmt::format("{}.{}", key.section, key.name)] = where;
  return OkStatus();
}

// " (it belongs to [optimizer])", where one section alone has a key of that name.
std::string OwnSection(std::string_view name) {
  const ConfigKey* only = nullptr;
  for (const ConfigKey& key : ConfigKeys()) {
    if (key.name != name) continue;
    if (only != nullptr) return "";
    only = &key;
  }
  return only == nullptr ? "" : fmt::format(" (it belongs to [{}])", only->section);
}

Status UnknownKey(const std::string& where, std::string_view section, std::string_view name) {
  const std::vector<std::string> known = KeyNames(section);
  if (known.empty()) {
    std::string hint = ForeignKeyHint(section, "");
    if (hint.empty()) {
      hint = fmt::format("{}; known: {}", DidYouMean(section, SectionNames()),
                         Join(SectionNames(), ", "));
    }
    return InvalidArgument(fmt::format("{}: unknown section [{}]{}", where, section, hint));
  }
  std::string hint = ForeignKeyHint(section, name);
  if (hint.empty()) hint = DidYouMean(name, known);
  if (hint.empty()) hint = OwnSection(name);
  if (hint.empty()) hint = "; known: " + Join(known, ", ");
  return InvalidArgument(fmt::format("{}: unknown key '{}' in [{}]{}", where, name, section, hint));
}

bool IsPinTable(std::string_view section, std::string_view name, const toml::node& value) {
  return section == "parallelism" && name == "pin" && value.is_table();
}

// [parallelism.pin], a key per weight, as the text of parallelism.sharding_pins.
Result<toml::value<std::string>> PinText(const toml::table& pins, const std::string& file) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : pins) {
    if (!value.is_string()) {
      return Fail(InvalidArgument(fmt::format(
          "{}: parallelism.pin.\"{}\" must be a sharding such as \"[_,_{{tensor}}]\", is {}",
          Position(file, value.source()), name.str(), ValueText(value))));
    }
    texts.push_back(fmt::format("{}={}", name.str(), *value.value<std::string>()));
  }
  return toml::value<std::string>(Join(texts, "; "));
}

Status ApplyPins(JobConfig& config, const toml::table& pins, const std::string& file) {
  MW_ASSIGN_OR_RETURN(const auto text, PinText(pins, file));
  return SetKey(config, *FindKey("parallelism", "sharding_pins"), text,
                Position(file, pins.source()));
}

void ApplySection(JobConfig& config, std::string_view section, const toml::table& table,
                  const std::string& file, ConfigErrors& errors) {
  for (const auto& [name, value] : table) {
    const std::string full = fmt::format("{}.{}", section, name.str());
    const std::string where = Position(file, value.source());
    if (IsPinTable(section, name.str(), value)) {
      errors.Add(ApplyPins(config, *value.as_table(), file), full, where);
      continue;
    }
    const ConfigKey* key = FindKey(section, name.str());
    if (key == nullptr) {
      const std::string at = Position(file, name.source());
      errors.Add(UnknownKey(at, section, name.str()), full, at);
    } else {
      errors.Add(SetKey(config, *key, value, where), full, where);
    }
  }
}

void ApplyTable(JobConfig& config, const toml::table& root, const std::string& file,
                ConfigErrors& errors) {
  for (const auto& [section, node] : root) {
    const std::string where = Position(file, section.source());
    const toml::table* table = node.as_table();
    if (table == nullptr) {
      std::string hint = ForeignKeyHint("", section.str());
      if (hint.empty()) hint = OwnSection(section.str());
      errors.Add(InvalidArgument(
                     fmt::format("{}: '{}' is outside of a section{}", where, section.str(), hint)),
                 std::string(section.str()), where);
    } else if (KeyNames(section.str()).empty()) {
      errors.Add(UnknownKey(where, section.str(), ""), std::string(section.str()), where);
    } else {
      ApplySection(config, section.str(), *table, file, errors);
    }
  }
}

// Sets one key from text in TOML syntax; what is no TOML value counts as a bare word.
Status ApplyText(JobConfig& config, const ConfigKey& key, const std::string& text,
                 const std::string& where) {
  toml::parse_result parsed = toml::parse("v = " + text);
  const bool alone = parsed.succeeded() && parsed.table().size() == 1;
  if (alone) return SetKey(config, key, *parsed.table().get("v"), where);
  const toml::value<std::string> word(text);
  return SetKey(config, key, word, where);
}

void ApplyOverride(JobConfig& config, const std::string& text, ConfigErrors& errors) {
  const std::string where = "--set " + text;
  const size_t equals = text.find('=');
  const size_t dot = text.find('.');
  if (equals == std::string::npos || dot == std::string::npos || dot > equals) {
    errors.Add(InvalidArgument(where + ": write section.key=value, for example training.steps=100"),
               "", where);
    return;
  }
  const std::string section = text.substr(0, dot);
  const std::string name = text.substr(dot + 1, equals - dot - 1);
  const ConfigKey* key = FindKey(section, name);
  errors.Add(key == nullptr ? UnknownKey(where, section, name)
                            : ApplyText(config, *key, text.substr(equals + 1), where),
             text.substr(0, equals), where);
}

bool IsOpen(const ConfigKey& key, const JobConfig& config) {
  const std::string value = FormatValue(key, config);
  return value.empty() || value == "\"auto\"" || value == "\"\"" ||
         !config.origins.contains(fmt::format("{}.{}", key.section, key.name));
}

// What a saved plan says of a key, which the job leaves open or agrees with.
Status ApplyDecision(JobConfig& config, const ConfigKey& key, const toml::node& node,
                     const std::string& where) {
  const bool was_open = IsOpen(key, config);
  const std::string before = FormatValue(key, config);
  const std::string name = fmt::format("{}.{}", key.section, key.name);
  const std::string origin = was_open ? "" : config.origins.at(name);
  MW_TRY(SetKey(config, key, node, where));
  const std::string after = FormatValue(key, config);
  if (was_open || before == after) return OkStatus();
  return InvalidArgument(
      fmt::format("{}: {} is {}, but {} pins it to {}; take it out of one of them, or make the "
                  "job's \"auto\"",
                  where, name, after, origin, before));
}

Status ApplyDecisions(JobConfig& config, const ConfigSource& source) {
  const toml::parse_result parsed = toml::parse(source.decisions, source.decisions_file);
  const std::string& file = source.decisions_file;
  if (!parsed.succeeded()) {
    return InvalidArgument(fmt::format("{}: {}", Position(file, parsed.error().source()),
                                       parsed.error().description()));
  }
  for (const auto& [section, node] : parsed.table()) {
    if (section.str() == "plan") continue;
    const toml::table* table = node.as_table();
    const bool known = section.str() == "parallelism" || section.str() == "activation_checkpoint";
    if (table == nullptr || !known) {
      return InvalidArgument(fmt::format(
          "{}: '{}' is no decision of a plan: a saved plan has [plan], [parallelism] and "
          "[activation_checkpoint]; is this a job file?",
          Position(file, section.source()), section.str()));
    }
    for (const auto& [name, value] : *table) {
      if (IsPinTable(section.str(), name.str(), value)) {
        MW_ASSIGN_OR_RETURN(const auto pins, PinText(*value.as_table(), file));
        MW_TRY(ApplyDecision(config, *FindKey("parallelism", "sharding_pins"), pins,
                             Position(file, value.source())));
        continue;
      }
      const ConfigKey* key = FindKey(section.str(), name.str());
      if (key == nullptr) {
        return UnknownKey(Position(file, name.source()), section.str(), name.str());
      }
      MW_TRY(ApplyDecision(config, *key, value, Position(file, value.source())));
    }
  }
  return OkStatus();
}

std::string EnvironmentName(const ConfigKey& key) {
  std::string name = fmt::format("MESHWRIGHT__{}__{}", key.section, key.name);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return name;
}

void ApplyEnvironment(JobConfig& config, const ConfigSource& source, ConfigErrors& errors) {
  std::vector<std::string> known;
  for (const ConfigKey& key : ConfigKeys()) {
    known.push_back(EnvironmentName(key));
    const std::string where = "environment " + known.back();
    const auto value = source.environment(known.back());
    if (!value) continue;
    errors.Add(ApplyText(config, key, *value, where), fmt::format("{}.{}", key.section, key.name),
               where);
  }
  for (const std::string& name : source.environment_names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string where = "environment " + name;
    errors.Add(InvalidArgument(fmt::format("{}: there is no such key{}; write "
                                           "MESHWRIGHT__SECTION__KEY with a key of "
                                           "docs/config.md, or unset it",
                                           where, DidYouMean(name, known))),
               "", where);
  }
}

}  // namespace

JobConfig ParseJobConfig(const ConfigSource& source, ConfigErrors& errors) {
  JobConfig config;
  const toml::parse_result parsed = toml::parse(source.text, source.file);
  if (!parsed.succeeded()) {
    const std::string where = Position(source.file, parsed.error().source());
    errors.Add(InvalidArgument(fmt::format("{}: {}", where, parsed.error().description())), "",
               where);
    return config;
  }
  ApplyTable(config, parsed.table(), source.file, errors);
  ApplyEnvironment(config, source, errors);
  for (const std::string& text : source.overrides) ApplyOverride(config, text, errors);
  // What follows from values is not known where one of them is wrong.
  if (!errors.empty()) return config;
  if (!source.decisions.empty()) errors.Add(ApplyDecisions(config, source), config);
  for (const Status& status : ResolveConfig(config, source.file)) errors.Add(status, config);
  return config;
}

Result<JobConfig> ParseJobConfig(const ConfigSource& source) {
  ConfigErrors errors;
  JobConfig config = ParseJobConfig(source, errors);
  MW_TRY(errors.Together());
  return config;
}

Result<JobConfig> LoadJobConfig(const std::string& path, std::vector<std::string> overrides,
                                const std::string& decisions_path) {
  ConfigSource source;
  if (!decisions_path.empty()) {
    MW_ASSIGN_OR_RETURN(source.decisions, ReadFile(decisions_path));
    source.decisions_file = decisions_path;
  }
  MW_ASSIGN_OR_RETURN(source.text, ReadFile(path));
  source.file = path;
  source.overrides = std::move(overrides);
  MW_ASSIGN_OR_RETURN(JobConfig config, ParseJobConfig(source));
  config.folder = std::filesystem::path(path).parent_path().string();
  // Where the job is read again, as by `generate`, there is no folder of a job file.
  for (std::string* file : {&config.hf_path, &config.tokenizer}) {
    if (!file->empty() && *file != "byte") *file = data::ResolvePath(*file, config.folder);
  }
  return config;
}

std::string FormatJobConfig(const JobConfig& config) {
  std::string text;
  std::string_view section;
  for (const ConfigKey& key : ConfigKeys()) {
    const std::string value = FormatValue(key, config);
    if (value.empty() || value == "\"\"") continue;
    if (key.section != section) {
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", key.section);
      section = key.section;
    }
    text += fmt::format("{} = {}\n", key.name, value);
  }
  return text;
}

}  // namespace meshwright::config
