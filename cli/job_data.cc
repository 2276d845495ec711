#include "cli/job_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/os_error.h"
#include "base/text.h"
#include "cli/token_files.h"
#include "config/data_rows.h"
#include "config/data_sets.h"
#include "data/check_contents.h"
#include "data/describe.h"
#include "data/join.h"
#include "data/paths.h"

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

// Which key says what is read.
std::string DataKeys(const config::JobConfig& config) {
  const std::string training = config.datasets.empty()
                                   ? KeyText("training.dataset_path", config.dataset_path)
                                   : "training.datasets";
  if (!config.validation_datasets.empty()) return training + ", validation.datasets";
  if (config.validation_path.empty()) return training;
  return training + ", " + KeyText("validation.dataset_path", config.validation_path);
}

// An error of data/ in words of the job file.
Status OfKeys(const Status& status, const config::JobConfig& config) {
  return status.WithContext(DataKeys(config));
}

// A path without a file, of the key that names it.
Status CheckThere(const config::JobConfig& config, const char* key, const config::DataSet& set) {
  const std::string& path = set.path;
  const auto files = data::ExpandPath(path, config.folder, "");
  if (files.has_value() || files.error().code() != StatusCode::kNotFound) return OkStatus();
  const bool glob = path.find_first_of("*?[") != std::string::npos;
  // Megatron's data sets may be named without an extension.
  if (set.format == "megatron" && data::ExpandPath(path + ".bin", config.folder, "").has_value()) {
    return OkStatus();
  }
  const std::string what = KeyText(key, path);
  const Status missing = glob ? NotFound(what + ": nothing matches") : OsError(ENOENT, what);
  return Status(missing.code(), missing.message() + MissingHint(config, path));
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

// Whether texts of this format become tokens of a tokenizer.
bool IsText(const std::string& format) { return format == "text" || format == "jsonl"; }

// The files of tokens of one data set.
Result<TokenFiles> FilesOfTokens(const config::JobConfig& config, const config::DataSet& set) {
  TokenFilesRequest request;
  MW_ASSIGN_OR_RETURN(request.files, data::ExpandPath(set.path, config.folder, ""));
  MW_ASSIGN_OR_RETURN(request.documents.tokenizer, TokenizerOf(config));
  request.documents.format = set.format;
  request.documents.answers = config.loss_on == "answers";
  if (config.model.document_separator.value_or(-1) >= 0) {
    request.documents.separator = config.model.document_separator;
  }
  MW_ASSIGN_OR_RETURN(const client::RowKind rows, config::RowKindOf(config));
  if (rows != client::RowKind::kWindows) {
    request.rows = {config.train.sequence, client::IsPacked(rows), rows == client::RowKind::kWords};
  }
  request.cache = TokenCacheOf(request.files.front());
  ProgressLine line;
  request.progress = [&line](int64_t done, int64_t all) { line.Show(done, all); };
  return MakeTokenFiles(request);
}

// Two formats whose tokens are of two kinds do not go into one job.
Status CheckFormat(const config::JobConfig& config, const config::DataSet& set) {
  const bool known = IsText(set.format) || data::IsTokenFormat(set.format);
  if (known && IsText(set.format) == IsText(config.dataset_format)) return OkStatus();
  return InvalidArgument(
      fmt::format("the data set '{}' has the format \"{}\"; sets of a job whose "
                  "training.dataset_format is \"{}\" "
                  "have {}",
                  set.name, set.format, config.dataset_format,
                  IsText(config.dataset_format) ? "text or jsonl" : "a format of tokens"));
}

Result<data::NamedStream> ReadSet(const config::JobConfig& config, const config::DataSet& set) {
  data::FilesRequest request;
  request.format = set.format;
  request.paths = {set.path};
  if (IsText(set.format)) {
    MW_ASSIGN_OR_RETURN(TokenFiles made, FilesOfTokens(config, set));
    if (made.paths.empty()) {
      return Fail(InvalidArgument(
          fmt::format("{} has no {}", set.path,
                      config.loss_on == "answers" ? "token of an answer" : "tokens")));
    }
    request.paths = std::move(made.paths);
    request.format = made.format;
  }
  request.validation_fraction = config.data.validation_fraction;
  request.folder = config.folder;
  MW_ASSIGN_OR_RETURN(ir::DataStream stream, data::DescribeFiles(request));
  return data::NamedStream{set.name, set.weight, std::move(stream)};
}

Result<data::NamedStream> FindSet(const config::JobConfig& config, const char* key,
                                  const config::DataSet& set) {
  MW_TRY(CheckThere(config, key, set));
  const Status known = CheckFormat(config, set);
  if (!known.ok()) return Fail(OfKeys(known, config));
  auto read = ReadSet(config, set);
  if (!read.has_value()) return Fail(OfKeys(read.error(), config));
  return read;
}

Result<std::vector<data::NamedStream>> FindSets(const config::JobConfig& config, const char* key,
                                                const std::vector<config::DataSet>& sets) {
  std::vector<data::NamedStream> streams;
  for (const config::DataSet& set : sets) {
    MW_ASSIGN_OR_RETURN(data::NamedStream stream, FindSet(config, key, set));
    streams.push_back(std::move(stream));
  }
  return streams;
}

Result<ir::DataStream> FindAll(const config::JobConfig& config,
                               const std::vector<config::DataSet>& training,
                               const std::vector<config::DataSet>& validation) {
  const char* training_key =
      config.datasets.empty() ? "training.dataset_path" : "training.datasets";
  const char* validation_key =
      config.validation_datasets.empty() ? "validation.dataset_path" : "validation.datasets";
  MW_ASSIGN_OR_RETURN(auto trained, FindSets(config, training_key, training));
  MW_ASSIGN_OR_RETURN(auto validated, FindSets(config, validation_key, validation));
  // Each set has its batches of a validation.
  for (data::NamedStream& set : validated) {
    set.weight = std::max<int64_t>(1, config.train.validation_batches * config.train.global_batch);
  }
  auto joined = data::JoinStreams(std::move(trained), std::move(validated));
  if (!joined.has_value()) return Fail(OfKeys(joined.error(), config));
  return joined;
}

}  // namespace

std::string FolderOfModel(const config::JobConfig& config) {
  if (!config.hf_path.ends_with(".json")) return config.hf_path;
  const std::string folder = std::filesystem::path(config.hf_path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// The tokenizer of the data: the one that is named, else the model's.
Result<std::string> TokenizerOf(const config::JobConfig& config) {
  if (config.tokenizer != "byte") return data::ResolvePath(config.tokenizer, config.folder);
  if (!config.hf_path.empty()) return FolderOfModel(config);
  return Fail(InvalidArgument(
      fmt::format("training.dataset_format is \"{}\", so training.tokenizer has to name a "
                  "tokenizer.json, a tokenizer.model or the folder of a model",
                  config.dataset_format)));
}

Result<ir::DataStream> FindDataset(const config::JobConfig& config) {
  MW_ASSIGN_OR_RETURN(const auto training, config::TrainingSets(config));
  MW_ASSIGN_OR_RETURN(const auto validation, config::ValidationSets(config));
  if (training.empty()) {
    return Fail(
        InvalidArgument("training.dataset_path is empty; name a text file, for example --set "
                        "training.dataset_path=book.txt"));
  }
  return FindAll(config, training, validation);
}

Status CheckDataset(const config::JobConfig& config, const ir::DataStream& dataset,
                    int64_t vocabulary) {
  const data::ContentRules rules{config.train.sequence, vocabulary,
                                 config.dataset_format == "bytes"};
  const Status status = data::CheckContents(dataset, rules);
  return status.ok() ? status : OfKeys(status, config);
}

}  // namespace meshwright::cli
