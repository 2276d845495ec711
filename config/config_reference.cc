// The table of keys as JSON Schema and as Markdown.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "config/config_keys.h"
#include "config/job_config.h"
#include "config/key_ranges.h"

namespace meshwright::config {
namespace {

using Json = nlohmann::ordered_json;

struct SchemaType {
  Json operator()(const int64_t*) const { return {{"type", "integer"}}; }
  Json operator()(const uint64_t*) const { return {{"type", "integer"}, {"minimum", 0}}; }
  Json operator()(const double*) const { return {{"type", "number"}}; }
  Json operator()(const bool*) const { return {{"type", "boolean"}}; }
  Json operator()(const std::string*) const { return {{"type", "string"}}; }
  Json operator()(const std::vector<std::string>*) const {
    return {{"type", "array"}, {"items", {{"type", "string"}}}};
  }
  template <typename T>
  Json operator()(const std::optional<T>*) const {
    return (*this)(static_cast<const T*>(nullptr));
  }
};

Json KeySchema(const ConfigKey& key) {
  JobConfig scratch;
  Json schema = std::visit(SchemaType(), key.bind(scratch));
  if (key.kind == KeyKind::kDegree || key.kind == KeyKind::kStage) {
    schema = {{"oneOf", {{{"type", "integer"}, {"minimum", -1}}, {{"const", "auto"}}}}};
  }
  if (key.kind == KeyKind::kSwitch) {
    schema = {{"oneOf", {{{"type", "boolean"}}, {{"const", "auto"}}}}};
  }
  const KeyRange* range = FindRange(key.section, key.name);
  if (range != nullptr && key.kind == KeyKind::kPlain) {
    schema[range->open_low ? "exclusiveMinimum" : "minimum"] = range->low;
    // JSON has no infinity.
    if (std::isfinite(range->high)) {
      schema[range->open_high ? "exclusiveMaximum" : "maximum"] = range->high;
    }
  }
  if (key.kind == KeyKind::kChoice) schema["enum"] = key.choices;
  schema["description"] = key.doc;
  return schema;
}

std::string DefaultText(const ConfigKey& key) {
  const std::string value = FormatValue(key, JobConfig());
  return value.empty() || value == "\"\"" || value == "[]" ? "" : fmt::format("`{}`", value);
}

}  // namespace

std::string ConfigSchemaJson() {
  Json sections = Json::object();
  for (const ConfigKey& key : ConfigKeys()) {
    Json& section = sections[std::string(key.section)];
    section["type"] = "object";
    section["additionalProperties"] = false;
    section["properties"][std::string(key.name)] = KeySchema(key);
  }
  const Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                       {"title", "Meshwright job"},
                       {"type", "object"},
                       {"additionalProperties", false},
                       {"properties", sections}};
  return schema.dump(2) + "\n";
}

std::string ConfigReferenceMarkdown() {
  std::string text =
      "# Job file\n\n"
      "<!-- Made by `meshwright config docs` from the parser's own table; edit "
      "config/keys_of_*.cc "
      "instead. -->\n\n"
      "A job is a TOML file. Sections and keys have TorchTitan's names. Later wins: built-in "
      "default, job file,\n"
      "environment `MESHWRIGHT__SECTION__KEY`, `--set section.key=value` (or "
      "`--section.key=value`). An unknown key is an\n"
      "error with its position and the nearest known name; so is a value out of range, and a "
      "variable `MESHWRIGHT__...`\n"
      "without a key. A value that has no effect, such as `momentum` with adamw, is a printed "
      "note.\n\n"
      "Every degree of `[parallelism]` may be a number, which the planner must keep, or `-1` or "
      "`\"auto\"`, which the\n"
      "planner searches (docs/planner.md); `meshwright plan` shows what it chose, and from "
      "what.\n\n"
      "`meshwright config validate FILE` checks a file, `meshwright config show FILE` prints it "
      "resolved,\n"
      "`meshwright config schema` prints a JSON Schema for editors.\n";
  std::string_view section;
  for (const ConfigKey& key : ConfigKeys()) {
    if (key.section != section) {
      section = key.section;
      text += fmt::format("\n## [{}]\n\n| key | type | default | meaning |\n|---|---|---|---|\n",
                          section);
    }
    text += fmt::format("| `{}` | {} | {} | {} |\n", key.name, WantedType(key), DefaultText(key),
                        key.doc);
  }
  return text;
}

}  // namespace meshwright::config
