// adapter export, merge.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file.h"
#include "cli/commands.h"
#include "cli/connect.h"
#include "cli/folder_job.h"
#include "cli/input_files.h"
#include "formats/adapters.h"

namespace meshwright::cli {
namespace {

std::optional<ir::DType> DTypeCalled(const std::string& name) {
  static const std::map<std::string, ir::DType> dtypes = {{"float32", ir::DType::kF32},
                                                          {"float64", ir::DType::kF64},
                                                          {"bfloat16", ir::DType::kBF16},
                                                          {"float16", ir::DType::kF16}};
  const auto it = dtypes.find(name);
  return it == dtypes.end() ? std::nullopt : std::optional(it->second);
}

// The weights of a model that are read: shards as one file.
Result<WeightsFile> OpenBase(const std::string& given) {
  config::JobConfig config;
  config.initial_load_path = given;
  MW_ASSIGN_OR_RETURN(const config::StartingWeights found, config::FindStartingWeights(config));
  return WeightsFile::Open(found);
}

// People know a job by its id.
Status CheckFile(const std::string& weights) {
  if (!IsJobId(weights) || FileExists(weights)) return OkStatus();
  return NotFound(fmt::format(
      "'{}' is no file; of job {} give the file model.safetensors of its folder, which `meshwright "
      "describe {}` names",
      weights, weights, weights));
}

Result<nlohmann::ordered_json> Export(const AdapterArgs& args) {
  MW_TRY(CheckFile(args.weights));
  MW_ASSIGN_OR_RETURN(const auto tuned, formats::SafetensorsFile::Open(args.weights));
  MW_TRY(formats::WriteAdapter(*tuned, args.out, args.base_model));
  return nlohmann::ordered_json{{"folder", args.out}};
}

Result<nlohmann::ordered_json> Merge(const AdapterArgs& args) {
  MW_TRY(CheckFile(args.weights));
  std::optional<WeightsFile> base;
  std::optional<TempDir> temporary;
  std::string path = args.weights;
  if (!args.adapter.empty()) {
    MW_ASSIGN_OR_RETURN(base, OpenBase(args.weights));
    MW_ASSIGN_OR_RETURN(temporary, TempDir::Make("meshwright-adapter"));
    path = temporary->File("tuned.safetensors");
    MW_TRY(formats::JoinAdapter(base->path(), args.adapter, path));
  }
  MW_ASSIGN_OR_RETURN(const auto tuned, formats::SafetensorsFile::Open(path));
  MW_TRY(formats::MergeAdapter(*tuned, args.out, DTypeCalled(args.dtype)));
  return nlohmann::ordered_json{{"file", args.out}};
}

}  // namespace

int RunAdapter(const AdapterArgs& args, const GlobalArgs& global) {
  const bool merges = args.action == AdapterAction::kMerge;
  const auto made = merges ? Merge(args) : Export(args);
  if (!made) return ReportError(made.error());
  if (global.json) {
    fmt::print("{}\n", made->dump());
  } else if (merges) {
    fmt::print("{}: the weights with the adapters added\n", args.out);
  } else {
    fmt::print("{}: {} and {}\n", args.out, formats::kAdapterConfig, formats::kAdapterWeights);
  }
  return kExitOk;
}

}  // namespace meshwright::cli
