// Reading a Hugging Face config.json: typed keys, null counts as absent.
//
// Thread rule: immutable after Parse. Errors are kInvalidArgument naming the key, the wanted type
// and the value.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace meshwright::models {

inline constexpr char kQuantizationFix[] = "use the model's unquantised version";

class HfConfig {
 public:
  static Result<HfConfig> Parse(const std::string& json_text);

  // Sets `value` when the key is present and not null. "a.b" looks into the object a.
  Status Read(const std::string& key, int64_t& value) const;
  Status Read(const std::string& key, double& value) const;
  Status Read(const std::string& key, bool& value) const;
  Status Read(const std::string& key, std::string& value) const;
  Status Read(const std::string& key, std::vector<std::string>& value) const;
  Status Read(const std::string& key, std::vector<double>& value) const;
  bool Has(const std::string& key) const;         // present and not null
  bool IsNull(const std::string& key) const;      // present, and null: no default is meant
  int64_t Members(const std::string& key) const;  // of an object; 0: it is none

  // Errors: kInvalidArgument naming the first absent key. A name "a|b" wants one of two.
  Status Require(std::initializer_list<const char*> keys) const;
  Status RequireKey(const std::string& key) const;
  // For keys that change the model in a way that is not built: absent or `neutral` is fine. Errors:
  // kUnimplemented naming key, value and the one value that works.
  Status RefuseOther(const std::string& key, bool neutral) const;
  Status RefuseOther(const std::string& key, double neutral) const;
  // Errors: kUnimplemented when the key is there.
  Status RefuseKey(const std::string& key, const char* fix) const;

 private:
  struct Json;
  std::shared_ptr<const Json> json_;
};

// Errors: kInvalidArgument above ir::kMaxLayers, before a graph of that size is built.
Status CheckLayers(int64_t layers);
// Errors: kInvalidArgument unless it is -1 (none) or a token of the vocabulary.
Status CheckSeparator(int64_t separator, int64_t vocabulary);
// Errors: kInvalidArgument unless `heads` divides `width`.
Status CheckHeads(int64_t width, int64_t heads);
// Errors: kInvalidArgument naming the first value below 1.
Status CheckPositive(std::initializer_list<std::pair<const char*, int64_t>> values);
// Errors: kInvalidArgument unless 0 <= rate < 1.
Status CheckRate(const char* name, double rate);
// Errors: kInvalidArgument unless 0 < value <= high.
Status CheckAboveZero(const char* name, double value, double high);

}  // namespace meshwright::models
