#include "cli/model_folder.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file.h"
#include "cli/documents.h"
#include "cli/job_data.h"
#include "config/data_rows.h"
#include "config/job_config.h"

namespace meshwright::cli {
namespace {

constexpr char kWeightsAlone[] = "name a file NAME.safetensors to have the weights alone";
// What the tokenizers and the generation of transformers read.
constexpr const char* kFilesOfFolder[] = {"generation_config.json",
                                          "tokenizer.json",
                                          "tokenizer_config.json",
                                          "tokenizer.model",
                                          "special_tokens_map.json",
                                          "added_tokens.json",
                                          "vocab.json",
                                          "merges.txt",
                                          "vocab.txt",
                                          "spiece.model",
                                          "chat_template.jinja",
                                          "preprocessor_config.json"};

Result<config::JobConfig> ConfigOf(const ir::JobRequest& job) {
  if (job.config_text.empty()) {
    return Fail(FailedPrecondition(fmt::format(
        "job '{}' has no job file that says what its model is; {}", job.name, kWeightsAlone)));
  }
  config::ConfigSource source;
  source.text = job.config_text;
  source.file = "the job's file";
  source.environment_names = {};
  return config::ParseJobConfig(source);
}

const char* TorchName(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::kF64:
      return "float64";
    case ir::DType::kBF16:
      return "bfloat16";
    case ir::DType::kF16:
      return "float16";
    default:
      return "float32";
  }
}

Status CopyInto(const std::string& from, const std::string& folder, const std::string& name) {
  if (!FileExists(from)) return OkStatus();
  MW_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(from));
  return WriteFileAtomic(folder + "/" + name, bytes);
}

// The tokenizer that the job file names, under the name by which transformers finds it.
Status CopyTokenizer(const config::JobConfig& config, const std::string& folder) {
  MW_ASSIGN_OR_RETURN(const std::string path, TokenizerOf(config));
  if (!FileExists(path)) {
    if (!config::IsTokenized(config)) return OkStatus();
    return NotFound(
        fmt::format("training.tokenizer = \"{}\" is not there, and the folder is to have it; put "
                    "it back, or {}",
                    path, kWeightsAlone));
  }
  const std::string beside = FolderOfTokenizer(path);
  for (const char* name : kFilesOfFolder) {
    if (name != kFilesOfFolder[0]) MW_TRY(CopyInto(beside + "/" + name, folder, name));
  }
  if (beside == path) return OkStatus();
  return CopyInto(path, folder, path.ends_with(".model") ? "tokenizer.model" : "tokenizer.json");
}

// Keys of a config.json that transformers, and `generate`, look for in generation_config.json.
constexpr const char* kKeysOfGeneration[] = {
    "bos_token_id",        "eos_token_id",         "pad_token_id", "decoder_start_token_id",
    "forced_bos_token_id", "forced_eos_token_id",  "num_beams",    "length_penalty",
    "early_stopping",      "no_repeat_ngram_size", "min_length",   "max_length"};

// Where the texts end that a job with a tokenizer was trained on.
std::optional<uint32_t> EndOfTexts(const config::JobConfig& config) {
  if (!config::IsTokenized(config)) return std::nullopt;
  const auto path = TokenizerOf(config);
  return path.has_value() ? EndOfText(*path) : std::nullopt;
}

std::string GenerationConfigOf(const config::JobConfig& config,
                               const nlohmann::ordered_json& model) {
  nlohmann::ordered_json json = {{"_from_model_config", true}};
  for (const char* key : kKeysOfGeneration) {
    if (model.contains(key) && !model[key].is_null()) json[key] = model[key];
  }
  if (!json.contains("eos_token_id")) {
    if (const auto end = EndOfTexts(config)) json["eos_token_id"] = *end;
  }
  return json.dump(2) + "\n";
}

// What transformers is to do to images, where no folder said it.
Status WriteImageProcessor(const models::ModelRows& rows, const nlohmann::ordered_json& config,
                           const std::string& path) {
  if (rows.kind != models::SampleKind::kImage || FileExists(path)) return OkStatus();
  const std::vector<double> middle(static_cast<size_t>(rows.channels), 0.5);
  nlohmann::ordered_json json = {{"image_processor_type", "ViTImageProcessor"},
                                 {"do_resize", true},
                                 {"size", {{"height", rows.image}, {"width", rows.image}}},
                                 {"resample", 2},
                                 {"do_rescale", true},
                                 {"rescale_factor", 1.0 / 255},
                                 {"do_normalize", true},
                                 {"image_mean", config.value("image_mean", middle)},
                                 {"image_std", config.value("image_std", middle)}};
  return WriteFileAtomic(path, json.dump(2) + "\n");
}

}  // namespace

Status WriteModelFolder(const ir::JobRequest& job, ir::DType dtype, const std::string& folder) {
  MW_ASSIGN_OR_RETURN(const config::JobConfig config, ConfigOf(job));
  const auto prepared = config::PrepareJob(config);
  if (!prepared) {
    return Status(prepared.error().code(),
                  fmt::format("{}; {}", prepared.error().message(), kWeightsAlone));
  }
  const models::Model& model = prepared->model;
  if (model.hf_config.empty()) {
    return Unimplemented(
        fmt::format("no config.json is written of model '{}'; {}", model.name, kWeightsAlone));
  }
  auto json = nlohmann::ordered_json::parse(model.hf_config, nullptr, /*allow_exceptions=*/false);
  // The older name of the key is read by all versions of transformers.
  json.erase("dtype");
  json["torch_dtype"] = TorchName(dtype);
  MW_TRY(WriteFileAtomic(folder + "/config.json", json.dump(2) + "\n"));
  MW_TRY(WriteFileAtomic(folder + "/generation_config.json", GenerationConfigOf(config, json)));
  const std::string source = FolderOfModel(config);
  // A tokenizer of the job's own counts more than the folder's, with all that stands beside it.
  const bool own = config.tokenizer != "byte";
  if (!source.empty()) {
    for (const char* name : kFilesOfFolder) {
      if (own && name != kFilesOfFolder[0]) continue;
      MW_TRY(CopyInto(source + "/" + name, folder, name));
    }
  }
  MW_TRY(WriteImageProcessor(model.rows, json, folder + "/preprocessor_config.json"));
  return own ? CopyTokenizer(config, folder) : OkStatus();
}

Status CheckNoWeights(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("model") || name.find(".safetensors") == std::string::npos) continue;
    return AlreadyExists(fmt::format(
        "'{}' has weights already ({}); name another folder, or remove it first", folder, name));
  }
  return OkStatus();
}

}  // namespace meshwright::cli
