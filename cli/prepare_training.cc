#include "cli/prepare_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/file.h"
#include "cli/documents.h"
#include "cli/image_rows.h"
#include "cli/job_data.h"
#include "cli/mask_token.h"
#include "config/data_sets.h"
#include "config/saved_plan.h"
#include "config/starting_weights.h"
#include "data/paths.h"

namespace meshwright::cli {
namespace {

constexpr const char* kLines = ".jsonl";

// By the names of the files: of a folder or a glob all of them.
std::string FormatOf(const config::JobConfig& config, const std::string& path) {
  std::vector<std::string> files =
      data::ExpandPath(path, config.folder, "").value_or(std::vector{path});
  const bool lines = std::all_of(files.begin(), files.end(),
                                 [](const std::string& file) { return file.ends_with(kLines); });
  return lines ? "jsonl" : "text";
}

// Entries of sets that are JSON lines say so, unless they say another format.
void NameLines(const config::JobConfig& config, std::vector<std::string>& entries,
               const std::vector<config::DataSet>& sets) {
  for (size_t i = 0; i < entries.size(); ++i) {
    const size_t options = entries[i].rfind(": ");
    const bool has_options =
        options != std::string::npos && entries[i].find('=', options) != std::string::npos;
    if (has_options && entries[i].find("format=", options) != std::string::npos) continue;
    if (FormatOf(config, sets[i].path) != "jsonl") continue;
    entries[i] += has_options ? ", format=jsonl" : ": format=jsonl";
  }
}

// What the text of a job is read by, where it says no format: a tokenizer that it names, else that
// of its model, to which bytes would be other words.
Status TakeFormat(config::JobConfig& config) {
  MW_ASSIGN_OR_RETURN(const auto sets, config::TrainingSets(config));
  const bool says_nothing = config.tokenizer == "byte" && config.hf_path.empty();
  if (sets.empty() || says_nothing || config.origins.contains("training.dataset_format")) {
    return OkStatus();
  }
  MW_ASSIGN_OR_RETURN(const std::string tokenizer, TokenizerOf(config));
  // One that is named is meant: where it is not there, who reads by it says so.
  if (config.tokenizer == "byte" && !HasTokenizer(tokenizer)) {
    config.notes.push_back(
        fmt::format("training.dataset_format is \"bytes\", a token for each byte: the job says "
                    "none, and {} has no tokenizer.json, tokenizer.model or spiece.model",
                    tokenizer));
    return OkStatus();
  }
  MW_ASSIGN_OR_RETURN(const auto held, config::ValidationSets(config));
  config.dataset_format =
      config.datasets.empty() ? FormatOf(config, config.dataset_path) : std::string("text");
  NameLines(config, config.datasets, sets);
  NameLines(config, config.validation_datasets, held);
  if (!config.validation_path.empty() && config.datasets.empty() &&
      FormatOf(config, config.validation_path) != config.dataset_format) {
    return InvalidArgument(
        fmt::format("training.dataset_path is read as \"{}\", as the job says no format, and "
                    "validation.dataset_path = \"{}\" is another one; write validation.datasets = "
                    "[\"held: {}: format={}\"]",
                    config.dataset_format, config.validation_path, config.validation_path,
                    FormatOf(config, config.validation_path)));
  }
  config.notes.push_back(fmt::format(
      "training.dataset_format = \"{}\", as the job says none and {} is its tokenizer; \"bytes\" "
      "makes a token of each byte",
      config.dataset_format, tokenizer));
  return OkStatus();
}

// A model that was trained with a tokenizer learns nothing of bytes that somebody wants.
Status CheckBytes(const models::Model& model, const config::JobConfig& config) {
  constexpr int64_t kMostOfBytes = 384;  // as ByT5's, with tokens of its own behind them
  const bool says = config.origins.contains("training.dataset_format");
  const bool bytes = config.dataset_format == "bytes" && !config.dataset_path.empty();
  if (!bytes || says || config.hf_path.empty() || config.from_scratch ||
      model.rows.kind != models::SampleKind::kWindow || model.vocabulary <= kMostOfBytes) {
    return OkStatus();
  }
  MW_ASSIGN_OR_RETURN(const auto weights, config::FindStartingWeights(config));
  if (weights.path.empty() || !config.initial_load_path.empty()) return OkStatus();
  return InvalidArgument(fmt::format(
      "model.hf_path = \"{}\" has weights and no tokenizer that is read (tokenizer.json, "
      "tokenizer.model, spiece.model; AutoTokenizer.from_pretrained(..).save_pretrained(..) writes "
      "the first): put it there, or name one by training.tokenizer; training.dataset_format = "
      "\"bytes\" makes a token of each byte all the same",
      config.hf_path));
}

}  // namespace

Status NamingOtherJob(const Status& error, const PlannedJobFile& file) {
  if (file.decisions.empty()) return error;
  const Result<std::string> text = ReadFile(file.decisions);
  if (!text.has_value() || !config::IsSavedPlan(*text)) return error;
  const auto origin = config::ParsePlanOrigin(*text, file.decisions);
  // What is wrong with the job alone is no matter of the plan.
  Result<config::JobConfig> alone = config::LoadJobConfig(file.path, file.overrides);
  if (!origin.has_value() || !alone.has_value()) return error;
  const auto prepared = PrepareTraining(*alone);
  if (!prepared.has_value() || !config::IsOfAnotherJob(*origin, prepared->request)) return error;
  const bool named = !origin->job.empty() && origin->job != file.path;
  return error.WithContext(fmt::format(
      "{} is the plan of another job{}, and not of {} as it is; `meshwright plan {} "
      "--save FILE` saves one that is",
      file.decisions, named ? fmt::format(" ({})", origin->job) : "", file.path, file.path));
}

Result<config::JobConfig> LoadPlannedJob(const PlannedJobFile& file) {
  Result<config::JobConfig> config =
      config::LoadJobConfig(file.path, file.overrides, file.decisions);
  if (!config.has_value()) return Fail(NamingOtherJob(config.error(), file));
  return config;
}

Result<config::PreparedJob> PrepareTraining(config::JobConfig& config) {
  MW_TRY(TakeFormat(config));
  MW_TRY(TakeMaskToken(config));
  MW_ASSIGN_OR_RETURN(config::PreparedJob prepared, config::PrepareJob(config));
  if (NameClasses(prepared.model, config)) {
    MW_ASSIGN_OR_RETURN(prepared, config::PrepareJob(config));
  }
  MW_TRY(CheckMask(prepared.model, config));
  MW_TRY(CheckBytes(prepared.model, config));
  return prepared;
}

}  // namespace meshwright::cli
