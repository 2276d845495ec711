#include "models/hf_writer.h"

#include <nlohmann/json.hpp>

namespace meshwright::models {

struct HfWriter::Json {
  nlohmann::ordered_json root = nlohmann::ordered_json::object();

  // Makes the objects on the way.
  nlohmann::ordered_json& At(const std::string& key) {
    const size_t dot = key.find('.');
    if (dot == std::string::npos) return root[key];
    nlohmann::ordered_json* at = &root;
    size_t begin = 0;
    for (size_t end = dot;; end = key.find('.', begin)) {
      if (end == std::string::npos) return (*at)[key.substr(begin)];
      at = &(*at)[key.substr(begin, end - begin)];
      if (!at->is_object()) *at = nlohmann::ordered_json::object();
      begin = end + 1;
    }
  }
};

HfWriter::HfWriter(const std::string& had) : json_(std::make_unique<Json>()) {
  auto root = nlohmann::ordered_json::parse(had, nullptr, /*allow_exceptions=*/false);
  if (root.is_object()) json_->root = std::move(root);
}
HfWriter::~HfWriter() = default;

void HfWriter::Set(const std::string& key, int64_t value) { json_->At(key) = value; }
void HfWriter::Set(const std::string& key, double value) { json_->At(key) = value; }
void HfWriter::Set(const std::string& key, bool value) { json_->At(key) = value; }
void HfWriter::Set(const std::string& key, const char* value) { json_->At(key) = value; }
void HfWriter::Set(const std::string& key, const std::vector<std::string>& value) {
  json_->At(key) = value;
}
void HfWriter::Set(const std::string& key, const std::vector<double>& value) {
  json_->At(key) = value;
}
void HfWriter::Set(const std::string& key, const std::vector<int64_t>& value) {
  json_->At(key) = value;
}
void HfWriter::SetIn(const std::string& object, const std::string& name, int64_t value) {
  json_->At(object)[name] = value;
}
void HfWriter::SetNull(const std::string& key) { json_->At(key) = nullptr; }
void HfWriter::Clear(const std::string& key) { json_->At(key) = nlohmann::ordered_json::object(); }
void HfWriter::Remove(const std::string& key) { json_->root.erase(key); }

bool HfWriter::empty() const { return json_->root.empty(); }
std::string HfWriter::Text() const { return json_->root.dump(2) + "\n"; }

}  // namespace meshwright::models
