#include "models/hf_config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

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
  auto json = std::make_shared<Json>();
  json->root = nlohmann::json::parse(json_text, nullptr, /*allow_exceptions=*/false);
  if (!json->root.is_object()) {
    return Fail(InvalidArgument("config.json is not a JSON object"));
  }
  HfConfig config;
  config.json_ = std::move(json);
  return config;
}

bool HfConfig::Has(const std::string& key) const { return json_->Find(key) != nullptr; }

Status HfConfig::Read(const std::string& key, int64_t& value) const {
  const nlohmann::json* at = json_->Find(key);
  if (at == nullptr) return OkStatus();
  if (!at->is_number_integer()) return WrongType(key, "an integer", *at);
  value = at->get<int64_t>();
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

Status HfConfig::Read(const std::string& key, std::string& value) const {
  const nlohmann::json* at = json_->Find(key);
  if (at == nullptr) return OkStatus();
  if (!at->is_string()) return WrongType(key, "a string", *at);
  value = at->get<std::string>();
  return OkStatus();
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

}  // namespace meshwright::models
