// Attributes of a node: a small ordered map from name to value. Ordered, so that text and hashes
// are canonical.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace meshwright::ir {

using AttrValue =
    std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<std::string>>;

class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<const std::string, AttrValue>> values) : values_(values) {}

  bool Has(std::string_view name) const { return values_.find(name) != values_.end(); }
  // The value, or the fallback when absent or of another type.
  int64_t Int(std::string_view name, int64_t fallback = 0) const {
    return Get<int64_t>(name, fallback);
  }
  double Real(std::string_view name, double fallback = 0) const {
    return Get<double>(name, fallback);
  }
  std::string Str(std::string_view name, std::string fallback = "") const {
    return Get<std::string>(name, std::move(fallback));
  }
  std::vector<int64_t> Ints(std::string_view name) const {
    return Get<std::vector<int64_t>>(name, {});
  }
  std::vector<std::string> Strs(std::string_view name) const {
    return Get<std::vector<std::string>>(name, {});
  }
  void Set(std::string name, AttrValue value) {
    values_.insert_or_assign(std::move(name), std::move(value));
  }
  const std::map<std::string, AttrValue, std::less<>>& values() const { return values_; }

  friend bool operator==(const Attrs&, const Attrs&) = default;

 private:
  template <typename T>
  T Get(std::string_view name, T fallback) const {
    const auto it = values_.find(name);
    if (it == values_.end()) return fallback;
    const T* value = std::get_if<T>(&it->second);
    return value ? *value : fallback;
  }
  std::map<std::string, AttrValue, std::less<>> values_;
};

}  // namespace meshwright::ir
