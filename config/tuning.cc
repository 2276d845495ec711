#include "config/tuning.h"

#include <fmt/format.h>

#include <utility>

#include "base/file.h"
#include "config/starting_weights.h"
#include "formats/adapters.h"

namespace meshwright::config {
namespace {

template <typename T>
Status Adopt(const JobConfig& config, const char* key, T& own, const T& of_file) {
  const auto origin = config.origins.find(key);
  if (origin == config.origins.end()) {
    own = of_file;
    return OkStatus();
  }
  if (own == of_file) return OkStatus();
  return InvalidArgument(
      fmt::format("{}: {} is {}, but the adapters of lora.adapter_path have {}; "
                  "leave it out",
                  origin->second, key, own, of_file));
}

// Adapters that a job starts from say what they are.
Result<ir::LoraSpec> LoraOf(const JobConfig& config) {
  ir::LoraSpec lora = config.lora;
  if (config.adapter_path.empty()) return lora;
  const std::string path = fmt::format("{}/{}", AdapterFolder(config), formats::kAdapterConfig);
  const auto text = ReadFile(path);
  if (!text) return Fail(text.error().WithContext("lora.adapter_path"));
  const auto found = formats::ParseAdapterConfig(*text);
  if (!found) return Fail(found.error().WithContext("lora.adapter_path: " + path));
  MW_TRY(Adopt(config, "lora.rank", lora.rank, found->lora.rank));
  MW_TRY(Adopt(config, "lora.alpha", lora.alpha, found->lora.alpha));
  MW_TRY(Adopt(config, "lora.rank_stabilized", lora.rank_stabilized, found->lora.rank_stabilized));
  if (!config.origins.contains("lora.dropout")) lora.dropout = found->lora.dropout;
  if (lora.target_modules.empty()) lora.target_modules = found->lora.target_modules;
  if (lora.modules_to_save.empty()) lora.modules_to_save = found->lora.modules_to_save;
  return lora;
}

}  // namespace

// The groups in the order in which they count.
Result<client::FineTuning> TuningOf(const JobConfig& config) {
  client::FineTuning tuning;
  MW_ASSIGN_OR_RETURN(tuning.lora, LoraOf(config));
  tuning.terms = config.loss_terms;
  tuning.average_decay = config.ema_decay;
  // Beside adapters everything else is frozen already.
  if (!config.trainable.empty() && tuning.lora.rank == 0) {
    tuning.groups.push_back({.pattern = "*", .frozen = true});
  }
  for (const std::string& pattern : config.trainable) {
    tuning.groups.push_back({.pattern = pattern, .frozen = false});
  }
  for (const std::string& pattern : config.frozen) {
    tuning.groups.push_back({.pattern = pattern, .frozen = true});
  }
  for (const std::string& text : config.param_groups) {
    auto group = ir::ParseParamGroup(text);
    if (!group) return Fail(group.error().WithContext("optimizer.param_groups"));
    tuning.groups.push_back(*std::move(group));
  }
  return tuning;
}

}  // namespace meshwright::config
