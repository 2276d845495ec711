#include "cli/input_files.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <filesystem>

#include "base/file.h"
#include "base/os_error.h"
#include "base/unique_fd.h"

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

// The safetensors file that initial_load_path means.
Result<std::string> FindWeights(const config::JobConfig& config) {
  const std::string& path = config.initial_load_path;
  if (path.empty()) return std::string();
  const std::string what = fmt::format("checkpoint.initial_load_path = \"{}\"", path);
  std::string file = path;
  if (IsFolder(path)) {
    file += "/model.safetensors";
    const bool sharded = FileExists(path + "/model.safetensors.index.json");
    if (!FileExists(file)) {
      return Fail(NotFound(fmt::format(
          "{}: the folder has no model.safetensors{}; name a safetensors file, or a folder with "
          "that file",
          what, sharded ? ", only shards, which are not supported" : "")));
    }
  }
  MW_TRY(
      CheckReadable(what, file, "; name a safetensors file, or a folder with model.safetensors"));
  return file;
}

}  // namespace

Result<InputFiles> FindInputFiles(const config::JobConfig& config) {
  MW_TRY(CheckDataset(config));
  MW_ASSIGN_OR_RETURN(std::string weights, FindWeights(config));
  return InputFiles{config.dataset_path, std::move(weights)};
}

}  // namespace meshwright::cli
