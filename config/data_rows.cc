#include "config/data_rows.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "config/data_sets.h"

namespace meshwright::config {
namespace {

Status Refuse(const JobConfig& config, const char* key, const char* value) {
  const auto origin = config.origins.find(key);
  return InvalidArgument(fmt::format(
      "{}{} = {} is of data that are text or jsonl, and training.dataset_format is \"{}\"; take "
      "it out, or change the format",
      origin == config.origins.end() ? "" : origin->second + ": ", key, value,
      config.dataset_format));
}

}  // namespace

bool IsTokenized(const JobConfig& config) {
  return config.dataset_format == "text" || config.dataset_format == "jsonl";
}

Result<client::RowKind> RowKindOf(const JobConfig& config) {
  const bool answers = config.loss_on == "answers";
  if (!IsTokenized(config)) {
    if (config.mask_whole_words) return Fail(Refuse(config, "training.mask_whole_words", "true"));
    if (answers) return Fail(Refuse(config, "training.loss_on", "\"answers\""));
    if (config.packing) {
      return Fail(Refuse(config, "training.packing", *config.packing ? "true" : "false"));
    }
    return client::RowKind::kWindows;
  }
  if (config.mask_whole_words) {
    if (config.packing.value_or(true)) return client::RowKind::kWords;
    return Fail(
        InvalidArgument("training.packing is false, and training.mask_whole_words makes packed "
                        "rows; leave it out"));
  }
  if (!answers && !config.packing) return client::RowKind::kWindows;
  return config.packing.value_or(true) ? client::RowKind::kPacked : client::RowKind::kLabelled;
}

Result<ir::DataSpec> DataWithoutFiles(const JobConfig& config) {
  ir::DataSpec data = config.data;
  MW_ASSIGN_OR_RETURN(const client::RowKind rows, RowKindOf(config));
  MW_ASSIGN_OR_RETURN(const std::vector<DataSet> validation, ValidationSets(config));
  const bool several = validation.size() > 1;
  if (!data.streams.empty() || (rows == client::RowKind::kWindows && !several)) return data;
  ir::DataStream stream;
  stream.validation_fraction = data.validation_fraction;
  if (rows == client::RowKind::kWindows) {
    stream.fields = {{std::string(ir::kWindowField), ir::Element::kU16, {}, {}, {}}};
  } else {
    stream.kind = ir::DataKind::kRecords;
    std::vector<const char*> names = {"tokens", "labels"};
    if (client::IsPacked(rows)) names.insert(names.end(), {"segments", "positions"});
    if (rows == client::RowKind::kWords) names.emplace_back("words");
    for (const char* name : names) {
      stream.fields.push_back({name, ir::Element::kI32, {config.train.sequence}, {}, {}});
    }
  }
  for (const DataSet& set : validation) {
    if (several) stream.validation_parts.push_back({set.name, 0, 1});
  }
  data.streams = {std::move(stream)};
  return data;
}

}  // namespace meshwright::config
