// Model families: the rows of one table (models/families.cc).
//
// A family is what Hugging Face calls a model type: which keys of a config.json it has and what
// they mean, its sizes by name, and its formulas with the names of its weights. A row says the
// first two (models/families/); formulas are those of its config's type (models/llama.h).
//
// Thread rule: constant data and pure functions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "models/hf_config.h"
#include "models/registry.h"

namespace meshwright::models {

struct Family {
  std::string name;       // in job files
  std::string type = {};  // model_type of a config.json; empty: none is read
  std::vector<std::string> flavors = {};
  std::vector<std::string> keys = {};  // of a config.json that are plain values
  std::function<Result<Model>(const ModelSpec& spec)> of_flavor = {};
  std::function<Result<Model>(const HfConfig& json, const ModelSpec& spec)> of_folder = {};
};

const std::vector<Family>& Families();

}  // namespace meshwright::models
