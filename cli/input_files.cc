#include "cli/input_files.h"

#include <fmt/format.h>

#include <utility>

#include "base/file.h"
#include "cli/image_rows.h"
#include "cli/job_data.h"
#include "cli/row_files.h"
#include "config/data_rows.h"
#include "config/data_sets.h"
#include "formats/adapters.h"
#include "formats/safetensors.h"
#include "formats/sharded_safetensors.h"
#include "formats/weight_notes.h"

namespace meshwright::cli {

namespace {

Result<ir::DataStream> FindSamples(const config::JobConfig& config, const models::Model& model) {
  switch (model.rows.kind) {
    case models::SampleKind::kWindow:
      return FindDataset(config);
    case models::SampleKind::kImage:
      return FindImages(config, model);
    default:
      return FindRows(config, model);
  }
}

}  // namespace

Result<InputFiles> FindInputFiles(const config::JobConfig& config, const models::Model& model) {
  InputFiles files;
  MW_TRY(CheckRowFormat(config, model));
  MW_ASSIGN_OR_RETURN(files.dataset, FindSamples(config, model));
  MW_ASSIGN_OR_RETURN(files.weights, config::FindStartingWeights(config));
  return files;
}

Status CheckInputData(const config::JobConfig& config, const ir::DataStream& dataset,
                      int64_t vocabulary) {
  return CheckDataset(config, dataset, vocabulary);
}

Status CheckInputDataIfAny(const config::JobConfig& config, const models::Model& model) {
  MW_TRY(CheckRowFormat(config, model));
  if (model.rows.kind != models::SampleKind::kWindow) return OkStatus();
  return CheckInputDataIfAny(config, model.vocabulary);
}

Status CheckInputDataIfAny(const config::JobConfig& config, int64_t vocabulary) {
  MW_ASSIGN_OR_RETURN(const auto sets, config::TrainingSets(config));
  if (sets.empty()) return OkStatus();
  // Making tokens may take hours, and a dry run is to take none: `submit` makes and checks them.
  if (config::IsTokenized(config)) {
    const Result<std::string> tokenizer = TokenizerOf(config);
    return tokenizer.has_value() ? OkStatus() : tokenizer.error();
  }
  const Result<ir::DataStream> dataset = FindDataset(config);
  if (dataset.has_value()) return CheckInputData(config, *dataset, vocabulary);
  return dataset.error().code() == StatusCode::kNotFound ? OkStatus() : dataset.error();
}

Result<WeightsFile> WeightsFile::Open(const config::StartingWeights& weights) {
  WeightsFile file;
  file.path_ = weights.path;
  const bool shards = weights.path.ends_with(".json");
  if (!shards && weights.adapter.empty()) return file;
  MW_ASSIGN_OR_RETURN(file.merged_, TempDir::Make("meshwright-weights"));
  Status merged;
  if (shards) {
    file.path_ = file.merged_->File("model.safetensors");
    merged = formats::MergeShards(weights.path, file.path_);
  }
  if (merged.ok() && !weights.adapter.empty()) {
    const std::string base = std::exchange(file.path_, file.merged_->File("tuned.safetensors"));
    merged = formats::JoinAdapter(base, weights.adapter, file.path_);
  }
  if (merged.ok()) return file;
  const bool full = merged.code() == StatusCode::kResourceExhausted;
  return Fail(Status(merged.code(),
                     merged.message() + (full ? "; $TMPDIR names a folder with more room" : "")));
}

Result<std::vector<std::string>> CheckStartingWeights(const InputFiles& files,
                                                      const WeightsFile& weights,
                                                      const ir::Graph& loss) {
  if (weights.path().empty()) return std::vector<std::string>();
  const auto file = formats::SafetensorsFile::Open(weights.path());
  const Status status = file ? formats::CheckWeights(**file, loss) : file.error();
  if (status.ok()) return formats::NotesOfWeights(**file, loss);
  const bool of_folder = files.weights.key.starts_with("model.hf_path");
  return Fail(Status(status.code(), status.message() + (of_folder ? "; or draw weights anew with "
                                                                    "model.from_scratch = true"
                                                                  : ""))
                  .WithContext(files.weights.key));
}

}  // namespace meshwright::cli
