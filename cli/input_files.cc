#include "cli/input_files.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <filesystem>

#include "base/file.h"
#include "base/os_error.h"
#include "base/unique_fd.h"
#include "formats/sharded_safetensors.h"

namespace meshwright::cli {
namespace {

// The text that examples/ and ./run train on.
constexpr char kCorpus[] = "runs/data/corpus.txt";

bool IsFolder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

Status CheckReadable(const std::string& what, const std::string& path, const std::string& hint) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.valid()) return OkStatus();
  const Status status = OsError(errno, what);
  return Status(status.code(), status.message() + hint);
}

Status CheckDataset(const config::JobConfig& config) {
  const std::string& path = config.dataset_path;
  if (path.empty()) {
    return InvalidArgument(
        "training.dataset_path is empty; name a text file, for example --set "
        "training.dataset_path=book.txt");
  }
  const std::string what = fmt::format("training.dataset_path = \"{}\"", path);
  if (IsFolder(path)) return InvalidArgument(what + ": is a folder; name one file in it");
  const std::string hint =
      path == kCorpus
          ? fmt::format("; make it with tools/make-corpus.sh {} (./run does that too)", kCorpus)
      : path.front() == '/' ? "; write the file or correct the path"
                            : "; write the file or correct the path, which is relative to the "
                              "current folder";
  return CheckReadable(what, path, hint);
}

}  // namespace

Result<InputFiles> FindInputFiles(const config::JobConfig& config) {
  MW_TRY(CheckDataset(config));
  MW_ASSIGN_OR_RETURN(config::StartingWeights weights, config::FindStartingWeights(config));
  return InputFiles{config.dataset_path, std::move(weights)};
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

}  // namespace meshwright::cli
