// The table of a job file's keys: one row says section, name, type, documentation and where the
// value goes. The parser, the resolved configuration, the JSON schema and docs/config.md are all
// made from it.
//
// Thread rule: constant data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/job_config.h"

namespace meshwright::config {

// Where the value of a key lives. An optional that stays empty means "as the model's flavor says".
using Binding =
    std::variant<int64_t*, uint64_t*, double*, bool*, std::string*, std::vector<std::string>*,
                 std::optional<int64_t>*, std::optional<double>*, std::optional<bool>*>;

enum class KeyKind : uint8_t {
  kPlain,   // the binding's own type
  kDegree,  // integer >= 1, or -1 or "auto": stored as 0
  kStage,   // integer >= 0, or -1 or "auto": stored as -1
  kSwitch,  // true, false or "auto": stored as empty
  kChoice,  // text out of `choices`, in any case
};

// Where the value of a key lives, and what of a request it is ("train.steps"): errors are about
// that.
struct BoundField {
  Binding (*at)(JobConfig& config);
  std::string_view field;  // as Status::field()
  Binding operator()(JobConfig& config) const { return at(config); }
};

struct ConfigKey {
  std::string_view section;
  std::string_view name;
  std::string_view doc;
  BoundField bind;
  KeyKind kind = KeyKind::kPlain;
  std::vector<std::string> choices = {};
};

const std::vector<ConfigKey>& ConfigKeys();

std::vector<std::string> SectionNames();
std::vector<std::string> KeyNames(std::string_view section);
const ConfigKey* FindKey(std::string_view section, std::string_view name);
// Null for a field that no key sets.
const ConfigKey* KeyOfField(std::string_view field);

// "an integer", "text", "true or false", "a number", "an integer or \"auto\"", "one of: a, b".
std::string WantedType(const ConfigKey& key);
// The bound value as TOML: 12, 0.5, "text", true; "" when unset.
std::string FormatValue(const ConfigKey& key, const JobConfig& config);

}  // namespace meshwright::config
