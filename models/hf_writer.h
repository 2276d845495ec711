// Writing a Hugging Face config.json: what it had, with the keys of a model set anew.
//
// A key "a.b" is b of the object a. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace meshwright::models {

class HfWriter {
 public:
  // had: the text of a config.json whose other keys stay; "": none.
  explicit HfWriter(const std::string& had = "");
  ~HfWriter();
  HfWriter(const HfWriter&) = delete;
  HfWriter& operator=(const HfWriter&) = delete;

  void Set(const std::string& key, int64_t value);
  void Set(const std::string& key, double value);
  void Set(const std::string& key, bool value);
  void Set(const std::string& key, const char* value);
  void Set(const std::string& key, const std::vector<std::string>& value);
  void Set(const std::string& key, const std::vector<double>& value);
  void Set(const std::string& key, const std::vector<int64_t>& value);
  // A member of an object, whatever stands in its name.
  void SetIn(const std::string& object, const std::string& name, int64_t value);
  void SetNull(const std::string& key);
  void Remove(const std::string& key);
  // An object without keys, where it was.
  void Clear(const std::string& key);

  bool empty() const;
  std::string Text() const;

 private:
  struct Json;
  std::unique_ptr<Json> json_;
};

}  // namespace meshwright::models
