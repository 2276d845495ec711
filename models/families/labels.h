// Classes of rows in a config.json: id2label, label2id and num_labels. Internal to models/.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "models/hf_config.h"
#include "models/hf_writer.h"
#include "models/registry.h"

namespace meshwright::models {

// How many there are, 2 where nothing says it, and their names where all have one. Errors:
// kUnimplemented: labels that are not one class of a row.
Status ReadLabels(const HfConfig& json, int64_t& labels, std::vector<std::string>& names);
// Those that a job gives. Errors: kInvalidArgument: others than there are classes, or equal ones.
Status NameLabels(const ModelSpec& spec, int64_t labels, std::vector<std::string>& names);
void WriteLabels(int64_t labels, const std::vector<std::string>& names, HfWriter& json);

}  // namespace meshwright::models
