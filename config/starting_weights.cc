#include "config/starting_weights.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/os_error.h"
#include "base/unique_fd.h"
#include "data/paths.h"

namespace meshwright::config {
namespace {

constexpr char kOneFile[] = "/model.safetensors";
constexpr char kShards[] = "/model.safetensors.index.json";

bool IsFolder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

// The file of a folder that has all weights or says where they are; "" without one.
std::string WeightsIn(const std::string& folder) {
  for (const char* name : {kOneFile, kShards}) {
    if (FileExists(folder + name)) return folder + name;
  }
  return "";
}

Status CheckReadable(const std::string& key, const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.valid()) return OkStatus();
  const Status status = OsError(errno, key);
  return Status(status.code(),
                status.message() + "; name a safetensors file, or a folder with model.safetensors");
}

Result<StartingWeights> FromLoadPath(const std::string& given, const std::string& job_folder) {
  const std::string path = data::ResolvePath(given, job_folder);
  StartingWeights found{path, fmt::format("checkpoint.initial_load_path = \"{}\"", given)};
  if (IsFolder(path)) {
    found.path = WeightsIn(path);
    if (found.path.empty()) {
      return Fail(NotFound(fmt::format(
          "{}: the folder has no model.safetensors and no model.safetensors.index.json; name a "
          "safetensors file, or a folder with one of these",
          found.key)));
    }
  }
  MW_TRY(CheckReadable(found.key, found.path));
  return found;
}

Result<StartingWeights> FromHfPath(const std::string& path) {
  StartingWeights found{{}, fmt::format("model.hf_path = \"{}\"", path)};
  if (!IsFolder(path)) {
    const std::string folder = std::filesystem::path(path).parent_path().string();
    if (!WeightsIn(folder.empty() ? "." : folder).empty()) {
      found.note =
          found.key +
          " names the configuration alone: weights are drawn anew; name its folder to start "
          "from the weights there";
    }
    return found;
  }
  found.path = WeightsIn(path);
  if (!found.path.empty()) {
    MW_TRY(CheckReadable(found.key, found.path));
    return found;
  }
  if (FileExists(path + "/pytorch_model.bin") ||
      FileExists(path + "/pytorch_model.bin.index.json")) {
    return Fail(NotFound(fmt::format(
        "{} has no model.safetensors, and its pytorch_model.bin is not read; transformers' "
        "save_pretrained(.., safe_serialization=True) writes the first, and model.from_scratch = "
        "true draws weights anew",
        found.key)));
  }
  found.note = fmt::format("{} has no model.safetensors: weights are drawn anew", found.key);
  return found;
}

}  // namespace

namespace {

Result<StartingWeights> FindModelsWeights(const JobConfig& config) {
  if (!config.initial_load_path.empty())
    return FromLoadPath(config.initial_load_path, config.folder);
  if (config.hf_path.empty() || config.from_scratch) return StartingWeights();
  return FromHfPath(config.hf_path);
}

}  // namespace

std::string AdapterFolder(const JobConfig& config) {
  return config.adapter_path.empty() ? "" : data::ResolvePath(config.adapter_path, config.folder);
}

Result<StartingWeights> FindStartingWeights(const JobConfig& config) {
  MW_ASSIGN_OR_RETURN(StartingWeights found, FindModelsWeights(config));
  found.adapter = AdapterFolder(config);
  if (found.adapter.empty() || !found.path.empty()) return found;
  return Fail(InvalidArgument(
      fmt::format("lora.adapter_path = \"{}\": adapters belong to weights; name these with "
                  "model.hf_path or checkpoint.initial_load_path",
                  config.adapter_path)));
}

}  // namespace meshwright::config
