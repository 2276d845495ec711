#include "cli/prepare_training.h"

#include <fmt/format.h>

#include <string>

#include "cli/documents.h"
#include "cli/image_rows.h"
#include "cli/job_data.h"
#include "cli/mask_token.h"

namespace meshwright::cli {
namespace {

// A model that has a tokenizer reads its tokens: bytes would be other words to it.
void TakeFormat(config::JobConfig& config) {
  const bool reads = !config.dataset_path.empty() || !config.datasets.empty();
  if (!reads || config.hf_path.empty() || config.origins.contains("training.dataset_format")) {
    return;
  }
  const auto folder = TokenizerOf(config);
  if (!folder.has_value() || !HasTokenizer(*folder)) return;
  config.dataset_format = config.dataset_path.ends_with(".jsonl") ? "jsonl" : "text";
  config.notes.push_back(fmt::format(
      "training.dataset_format = \"{}\", as the job says none and {} has a tokenizer; \"bytes\" "
      "makes a token of each byte",
      config.dataset_format, *folder));
}

}  // namespace

Result<config::PreparedJob> PrepareTraining(config::JobConfig& config) {
  TakeFormat(config);
  MW_TRY(TakeMaskToken(config));
  MW_ASSIGN_OR_RETURN(config::PreparedJob prepared, config::PrepareJob(config));
  if (NameClasses(prepared.model, config)) {
    MW_ASSIGN_OR_RETURN(prepared, config::PrepareJob(config));
  }
  MW_TRY(CheckMask(prepared.model, config));
  return prepared;
}

}  // namespace meshwright::cli
