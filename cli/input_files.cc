#include "cli/input_files.h"

#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/os_error.h"
#include "base/text.h"
#include "cli/row_files.h"
#include "cli/token_files.h"
#include "data/check_contents.h"
#include "data/describe.h"
#include "data/paths.h"
#include "formats/adapters.h"
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

// Whether the data are text that a tokenizer makes tokens of.
bool IsTokenized(const config::JobConfig& config) {
  return config.dataset_format == "text" || config.dataset_format == "jsonl";
}

// The tokenizer of the data: the one that is named, else the model's.
Result<std::string> TokenizerOf(const config::JobConfig& config) {
  if (config.tokenizer != "byte") return data::ResolvePath(config.tokenizer, config.folder);
  if (config.hf_path.ends_with(".json")) {
    return std::filesystem::path(config.hf_path).parent_path().string();
  }
  if (!config.hf_path.empty()) return config.hf_path;
  return Fail(InvalidArgument(
      fmt::format("training.dataset_format is \"{}\", so training.tokenizer has to name a "
                  "tokenizer.json, a tokenizer.model or the folder of a model",
                  config.dataset_format)));
}

// A line now and then of work that takes longer than a moment.
class ProgressLine {
 public:
  void Show(int64_t done, int64_t all) {
    const int64_t now_ns = SystemClock().NowNs();
    if (now_ns - shown_ns_ < 2'000'000'000) return;
    shown_ns_ = now_ns;
    fmt::print(stderr, "making tokens: {} of {}\n", FormatBytes(done), FormatBytes(all));
  }

 private:
  int64_t shown_ns_ = SystemClock().NowNs();
};

// The files of tokens of one path.
Result<TokenFiles> FilesOfTokens(const config::JobConfig& config, const std::string& path) {
  TokenFilesRequest request;
  MW_ASSIGN_OR_RETURN(request.files, data::ExpandPath(path, config.folder, ""));
  MW_ASSIGN_OR_RETURN(request.tokenizer, TokenizerOf(config));
  request.format = config.dataset_format;
  request.cache = TokenCacheOf(request.files.front());
  if (config.model.document_separator.value_or(-1) >= 0) {
    request.separator = config.model.document_separator;
  }
  ProgressLine line;
  request.progress = [&line](int64_t done, int64_t all) { line.Show(done, all); };
  return MakeTokenFiles(request);
}

// In place of texts the files that were made of them.
Status Tokenize(const config::JobConfig& config, data::FilesRequest& request) {
  for (std::vector<std::string>* paths : {&request.paths, &request.validation_paths}) {
    if (paths->empty()) continue;
    const auto made = FilesOfTokens(config, paths->front());
    if (!made.has_value()) return OfKeys(made.error(), config);
    if (made->paths.empty()) return InvalidArgument(paths->front() + " has no tokens");
    *paths = made->paths;
    request.format = made->format;
  }
  return OkStatus();
}

Result<ir::DataStream> FindDataset(const config::JobConfig& config) {
  if (config.dataset_path.empty()) {
    return Fail(
        InvalidArgument("training.dataset_path is empty; name a text file, for example --set "
                        "training.dataset_path=book.txt"));
  }
  MW_TRY(CheckThere(config, "training.dataset_path", config.dataset_path));
  if (!config.validation_path.empty()) {
    MW_TRY(CheckThere(config, "validation.dataset_path", config.validation_path));
  }
  data::FilesRequest request;
  request.format = config.dataset_format;
  request.paths = {config.dataset_path};
  if (!config.validation_path.empty()) request.validation_paths = {config.validation_path};
  if (IsTokenized(config)) MW_TRY(Tokenize(config, request));
  request.validation_fraction = config.data.validation_fraction;
  request.folder = config.folder;
  auto stream = data::DescribeFiles(request);
  if (!stream.has_value()) return Fail(OfKeys(stream.error(), config));
  return stream;
}

}  // namespace

Result<InputFiles> FindInputFiles(const config::JobConfig& config, const models::Model& model) {
  InputFiles files;
  const bool windows = model.rows.kind == models::SampleKind::kWindow;
  MW_ASSIGN_OR_RETURN(files.dataset, windows ? FindDataset(config) : FindRows(config, model));
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

Status CheckInputDataIfAny(const config::JobConfig& config, const models::Model& model) {
  MW_TRY(CheckRowFormat(config, model));
  if (model.rows.kind != models::SampleKind::kWindow) return OkStatus();
  return CheckInputDataIfAny(config, model.vocabulary);
}

Status CheckInputDataIfAny(const config::JobConfig& config, int64_t vocabulary) {
  if (config.dataset_path.empty()) return OkStatus();
  // Making tokens may take hours, and a dry run is to take none: `submit` makes and checks them.
  if (IsTokenized(config)) {
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
