#include "models/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json_error.h"
#include "base/json_int.h"
#include "ir/verify.h"

namespace meshwright::models {

struct HfConfig::Json {
  nlohmann::json root;

  // The value at a dotted key, or nullptr when absent or null.
  const nlohmann::json* Find(const std::string& key) const {
    const nlohmann::json* at = &root;
    size_t begin = 0;
    while (begin <= key.size()) {
      const size_t dot = std::min(key.find('.', begin), key.size());
      if (!at->is_object()) return nullptr;
      const auto it = at->find(key.substr(begin, dot - begin));
      if (it == at->end() || it->is_null()) return nullptr;
      at = &*it;
      begin = dot + 1;
    }
    return at;
  }
};

namespace {
Status WrongType(const std::string& key, const char* wanted, const nlohmann::json& value) {
  return InvalidArgument(
      fmt::format("config.json: '{}' must be {}, is {}", key, wanted,
                  value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
}
}  // namespace

Result<HfConfig> HfConfig::Parse(const std::string& json_text) {
  if (json_text.find_first_not_of(" \t\r\n") == std::string::npos) {
    return Fail(InvalidArgument("config.json is empty; download it again"));
  }
  auto json = std::make_shared<Json>();
  json->root = nlohmann::json::parse(json_text, nullptr, /*allow_exceptions=*/false);
  if (!json->root.is_object()) {
    return Fail(InvalidArgument("config.json is " + WhyNoJsonObject(json_text)));
  }
  HfConfig config;
  config.json_ = std::move(json);
  return config;
}

bool HfConfig::Has(const std::string& key) const { return json_->Find(key) != nullptr; }

bool HfConfig::IsNull(const std::string& key) const {
  const auto it = json_->root.find(key);
  return it != json_->root.end() && it->is_null();
}

int64_t HfConfig::Members(const std::string& key) const {
  const nlohmann::json* at = json_->Find(key);
  return at != nullptr && at->is_object() ? static_cast<int64_t>(at->size()) : 0;
}

Status HfConfig::Require(std::initializer_list<const char*> keys) const {
  for (const char* key : keys) MW_TRY(RequireKey(key));
  return OkStatus();
}

Status HfConfig::RequireKey(const std::string& key) const {
  const size_t bar = key.find('|');
  const bool present =
      bar == std::string::npos ? Has(key) : Has(key.substr(0, bar)) || Has(key.substr(bar + 1));
  if (present) return OkStatus();
  const std::string name =
      bar == std::string::npos ? key : key.substr(0, bar) + "' or '" + key.substr(bar + 1);
  return InvalidArgument(
      fmt::format("config.json has no '{}', which has no default; add it", name));
}

Status HfConfig::RefuseOther(const std::string& key, bool neutral) const {
  bool value = neutral;
  MW_TRY(Read(key, value));
  if (value == neutral) return OkStatus();
  return Unimplemented(
      fmt::format("config.json: {} = {} is not supported; only {}", key, value, neutral));
}

Status HfConfig::RefuseOther(const std::string& key, double neutral) const {
  double value = neutral;
  MW_TRY(Read(key, value));
  if (value == neutral) return OkStatus();
  return Unimplemented(
      fmt::format("config.json: {} = {} is not supported; only {}", key, value, neutral));
}

Status HfConfig::RefuseKey(const std::string& key, const char* fix) const {
  if (!Has(key)) return OkStatus();
  return Unimplemented(fmt::format("config.json: {} is not supported; {}", key, fix));
}

Status HfConfig::Read(const std::string& key, int64_t& value) const {
  const nlohmann::json* at = json_->Find(key);
  if (at == nullptr) return OkStatus();
  const auto number = FindJsonInt(*at);
  if (!number) return WrongType(key, "an integer of 64 bits", *at);
  value = *number;
  return OkStatus();
}

Status HfConfig::Read(const std::string& key, double& value) const {
  const nlohmann::json* at = json_->Find(key);
  if (at == nullptr) return OkStatus();
  if (!at->is_number()) return WrongType(key, "a number", *at);
  value = at->get<double>();
  return OkStatus();
}

Status HfConfig::Read(const std::string& key, bool& value) const {
  const nlohmann::json* at = json_->Find(key);
  if (at == nullptr) return OkStatus();
  if (!at->is_boolean()) return WrongType(key, "true or false", *at);
  value = at->get<bool>();
  return OkStatus();
}

Status HfConfig::Read(const std::string& key, std::vector<std::string>& value) const {
  const nlohmann::json* at = json_->Find(key);
  if (at == nullptr) return OkStatus();
  const bool texts = at->is_array() && std::all_of(at->begin(), at->end(), [](const auto& element) {
                       return element.is_string();
                     });
  if (!texts) return WrongType(key, "a list of strings", *at);
  value = at->get<std::vector<std::string>>();
  return OkStatus();
}

Status HfConfig::Read(const std::string& key, std::vector<double>& value) const {
  const nlohmann::json* at = json_->Find(key);
  if (at == nullptr) return OkStatus();
  const bool numbers = at->is_array() && std::all_of(at->begin(), at->end(), [](const auto& one) {
                         return one.is_number();
                       });
  if (!numbers) return WrongType(key, "a list of numbers", *at);
  value = at->get<std::vector<double>>();
  return OkStatus();
}

Status HfConfig::Read(const std::string& key, std::string& value) const {
  const nlohmann::json* at = json_->Find(key);
  if (at == nullptr) return OkStatus();
  if (!at->is_string()) return WrongType(key, "a string", *at);
  value = at->get<std::string>();
  return OkStatus();
}

Status CheckLayers(int64_t layers) {
  if (layers <= ir::kMaxLayers) return OkStatus();
  return InvalidArgument(
      fmt::format("n_layers is {}; a model has at most {} layers", layers, ir::kMaxLayers));
}

Status CheckSeparator(int64_t separator, int64_t vocabulary) {
  if (separator >= -1 && separator < vocabulary) return OkStatus();
  return InvalidArgument(
      fmt::format("document_separator is {}; it must be -1 (none) or a token below vocab_size {}",
                  separator, vocabulary));
}

Status CheckHeads(int64_t width, int64_t heads) {
  if (width % heads == 0) return OkStatus();
  return InvalidArgument(fmt::format(
      "dim {} is not a multiple of n_heads {}; choose n_heads that divides it", width, heads));
}

Status CheckPositive(std::initializer_list<std::pair<const char*, int64_t>> values) {
  // Bounded so that products of two sizes stay far from overflow.
  constexpr int64_t kMaxSize = int64_t{1} << 28;
  for (const auto& [name, value] : values) {
    if (value < 1 || value > kMaxSize) {
      return InvalidArgument(
          fmt::format("model: {} is {}; it must be in [1, {}]", name, value, kMaxSize));
    }
  }
  return OkStatus();
}

Status CheckRate(const char* name, double rate) {
  if (rate >= 0 && rate < 1) return OkStatus();
  return InvalidArgument(fmt::format("model: {} is {}; it must be in [0, 1)", name, rate));
}

Status CheckAboveZero(const char* name, double value, double high) {
  if (value > 0 && value <= high) return OkStatus();
  return InvalidArgument(
      fmt::format("model: {} is {}; it must be above 0 and at most {}", name, value, high));
}

}  // namespace meshwright::models
