#include "cli/mask_token.h"

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "cli/documents.h"
#include "cli/job_data.h"
#include "config/data_rows.h"
#include "tokenizer/tokenizer.h"

namespace meshwright::cli {
namespace {

using tokenizer::Tokenizer;

constexpr int64_t kBytes = 256;  // tokens of texts without a tokenizer

// The text of a special token in a file beside a tokenizer, where it says one.
std::optional<std::string> NamedIn(const std::string& file, const char* token) {
  const auto text = ReadFile(file);
  if (!text.has_value()) return std::nullopt;
  const nlohmann::json json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains(token)) return std::nullopt;
  const nlohmann::json& named = json[token];
  const bool is_object = named.is_object() && named.contains("content");
  const nlohmann::json& content = is_object ? named["content"] : named;
  return content.is_string() ? std::optional(content.get<std::string>()) : std::nullopt;
}

// The token of a tokenizer that stands for a hidden one: what the files beside it name, else by its
// usual names.
std::optional<int64_t> MaskOf(const std::string& path, const Tokenizer& tokenizer) {
  const std::string folder = FolderOfTokenizer(path);
  std::vector<std::string> names;
  for (const char* file : {"/tokenizer_config.json", "/special_tokens_map.json"}) {
    if (auto name = NamedIn(folder + file, "mask_token")) names.push_back(*std::move(name));
  }
  names.insert(names.end(), {"[MASK]", "<mask>"});
  for (const std::string& name : names) {
    if (const auto id = tokenizer.IdOf(name)) return *id;
  }
  return std::nullopt;
}

// Of the data: text is read by one; files of tokens were made by that of the model's folder, where
// it has one. Nothing: no tokenizer is known.
Result<std::optional<std::string>> TokenizerOfData(const config::JobConfig& config) {
  if (config.dataset_path.empty() && config.datasets.empty()) return std::optional<std::string>();
  if (config.dataset_format == "bytes") return std::optional<std::string>();
  if (config::IsTokenized(config)) {
    MW_ASSIGN_OR_RETURN(std::string path, TokenizerOf(config));
    return std::optional(std::move(path));
  }
  if (config.tokenizer == "byte" && config.hf_path.empty()) return std::optional<std::string>();
  MW_ASSIGN_OR_RETURN(std::string path, TokenizerOf(config));
  return HasTokenizer(path) ? std::optional(std::move(path)) : std::nullopt;
}

}  // namespace

Status TakeMaskToken(config::JobConfig& config) {
  const config::HiddenTokens hidden = config::HiddenTokensOf(config);
  if (!hidden.any) return OkStatus();
  MW_ASSIGN_OR_RETURN(const std::optional<std::string> path, TokenizerOfData(config));
  if (!path) return OkStatus();
  const Result<Tokenizer> tokenizer = Tokenizer::Load(*path);
  // Of a dry run it need not be there; a job that reads by it says so.
  if (!tokenizer.has_value() && tokenizer.error().code() == StatusCode::kNotFound) {
    return OkStatus();
  }
  MW_TRY(tokenizer);
  const std::optional<int64_t> mask = MaskOf(*path, *tokenizer);
  if (mask && hidden.mask.value_or(*mask) != *mask) {
    return InvalidArgument(fmt::format(
        "{} is {}, and the mask of the tokenizer {} is {}: take the first out, or name the "
        "tokenizer of this model",
        hidden.said_by, *hidden.mask, *path, *mask));
  }
  if (!mask && !hidden.mask) {
    return InvalidArgument(fmt::format(
        "the tokenizer {} has no token that stands for a hidden one (\"mask_token\" of its "
        "tokenizer_config.json, [MASK] or <mask>), and the model is to say what is hidden; "
        "model.mask_token = ID names one",
        *path));
  }
  if (mask) config.model.mask_token = mask;
  return OkStatus();
}

Status CheckMask(const models::Model& model, const config::JobConfig& config) {
  const std::optional<int64_t> mask = model.sizes.mask_token;
  if (model.functions.corrupt && !mask) {
    return InvalidArgument(
        "the model is to say what tokens are hidden, and nobody says what stands in their place; "
        "model.mask_token = ID names the [MASK] of its tokenizer");
  }
  const bool bytes = config.dataset_format == "bytes" && !config.dataset_path.empty();
  if (!bytes || !model.functions.corrupt || !mask || *mask >= kBytes) return OkStatus();
  return InvalidArgument(fmt::format(
      "model.mask_token is {}, which is also a byte of the text (training.dataset_format is "
      "\"bytes\"); say one from {} to {} that is none{}",
      *mask, kBytes, model.vocabulary - 1,
      config.hf_path.empty() ? ""
                             : ", or \"text\" for the tokens of the tokenizer in the model's "
                               "folder"));
}

}  // namespace meshwright::cli
