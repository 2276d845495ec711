#include "cli/input_files.h"

#include <fmt/format.h>

#include <cerrno>

#include "base/file.h"
#include "base/os_error.h"
#include "data/check_contents.h"
#include "data/describe.h"
#include "data/paths.h"
#include "formats/safetensors.h"
#include "formats/sharded_safetensors.h"

namespace meshwright::cli {
namespace {

// The text that examples/ and ./run train on.
constexpr char kCorpus[] = "runs/data/corpus.txt";

std::string KeyText(const char* key, const std::string& path) {
  return fmt::format("{} = \"{}\"", key, path);
}

std::string MissingHint(const config::JobConfig& config, const std::string& path) {
  if (path == kCorpus) {
    return fmt::format("; make it with tools/make-corpus.sh {} (./run does that too)", kCorpus);
  }
  if (path.front() == '/') return "; write the file or correct the path";
  return fmt::format(
      "; write the file or correct the path, which is relative to {}the current folder",
      config.folder.empty() ? ""
                            : fmt::format("the folder of the job file ({}) or ", config.folder));
}

// An error of data/ in words of the job file.
Status OfKeys(const Status& status, const config::JobConfig& config) {
  const bool both = !config.validation_path.empty();
  const std::string key =
      KeyText("training.dataset_path", config.dataset_path) +
      (both ? ", " + KeyText("validation.dataset_path", config.validation_path) : std::string());
  return status.WithContext(key);
}

// A path without a file, of the key that names it.
Status CheckThere(const config::JobConfig& config, const char* key, const std::string& path) {
  const auto files = data::ExpandPath(path, config.folder, "");
  if (files.has_value() || files.error().code() != StatusCode::kNotFound) return OkStatus();
  const bool glob = path.find_first_of("*?[") != std::string::npos;
  // Megatron's data sets may be named without an extension.
  if (config.dataset_format == "megatron" &&
      data::ExpandPath(path + ".bin", config.folder, "").has_value()) {
    return OkStatus();
  }
  const std::string what = KeyText(key, path);
  const Status missing = glob ? NotFound(what + ": nothing matches") : OsError(ENOENT, what);
  return Status(missing.code(), missing.message() + MissingHint(config, path));
}

Result<ir::DataStream> FindDataset(const config::JobConfig& config) {
  if (config.dataset_path.empty()) {
    return Fail(
        InvalidArgument("training.dataset_path is empty; name a text file, for example --set "
                        "training.dataset_path=book.txt"));
  }
  MW_TRY(CheckThere(config, "training.dataset_path", config.dataset_path));
  data::FilesRequest request;
  request.format = config.dataset_format;
  request.paths = {config.dataset_path};
  if (!config.validation_path.empty()) {
    MW_TRY(CheckThere(config, "validation.dataset_path", config.validation_path));
    request.validation_paths = {config.validation_path};
  }
  request.validation_fraction = config.data.validation_fraction;
  request.folder = config.folder;
  auto stream = data::DescribeFiles(request);
  if (!stream.has_value()) return Fail(OfKeys(stream.error(), config));
  return stream;
}

}  // namespace

Result<InputFiles> FindInputFiles(const config::JobConfig& config) {
  InputFiles files;
  MW_ASSIGN_OR_RETURN(files.dataset, FindDataset(config));
  MW_ASSIGN_OR_RETURN(files.weights, config::FindStartingWeights(config));
  return files;
}

Status CheckInputData(const config::JobConfig& config, const ir::DataStream& dataset,
                      int64_t vocabulary) {
  const data::ContentRules rules{config.train.sequence, vocabulary,
                                 config.dataset_format == "bytes"};
  const Status status = data::CheckContents(dataset, rules);
  return status.ok() ? status : OfKeys(status, config);
}

Status CheckInputDataIfAny(const config::JobConfig& config, int64_t vocabulary) {
  if (config.dataset_path.empty()) return OkStatus();
  const Result<ir::DataStream> dataset = FindDataset(config);
  if (dataset.has_value()) return CheckInputData(config, *dataset, vocabulary);
  return dataset.error().code() == StatusCode::kNotFound ? OkStatus() : dataset.error();
}

Result<WeightsFile> WeightsFile::Open(const config::StartingWeights& weights) {
  WeightsFile file;
  file.path_ = weights.path;
  if (!weights.path.ends_with(".json")) return file;
  MW_ASSIGN_OR_RETURN(file.merged_, TempDir::Make("meshwright-weights"));
  file.path_ = file.merged_->File("model.safetensors");
  const Status merged = formats::MergeShards(weights.path, file.path_);
  if (merged.ok()) return file;
  const bool full = merged.code() == StatusCode::kResourceExhausted;
  return Fail(Status(merged.code(),
                     merged.message() + (full ? "; $TMPDIR names a folder with more room" : "")));
}

Status CheckStartingWeights(const InputFiles& files, const WeightsFile& weights,
                            const ir::Graph& loss) {
  if (weights.path().empty()) return OkStatus();
  const auto file = formats::SafetensorsFile::Open(weights.path());
  const Status status = file ? formats::CheckWeights(**file, loss) : file.error();
  if (status.ok()) return status;
  const bool of_folder = files.weights.key.starts_with("model.hf_path");
  return Status(status.code(), status.message() + (of_folder ? "; or draw weights anew with "
                                                               "model.from_scratch = true"
                                                             : ""))
      .WithContext(files.weights.key);
}

}  // namespace meshwright::cli
