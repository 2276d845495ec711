#include "cli/job_codec.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "base/file.h"
#include "cli/documents.h"
#include "cli/job_data.h"
#include "cli/row_files.h"
#include "config/data_rows.h"
#include "config/job_config.h"

namespace meshwright::cli {
namespace {

// None: the job was made by a program.
std::optional<config::JobConfig> JobConfigOf(const ir::JobRequest& job) {
  if (job.config_text.empty()) return std::nullopt;
  config::ConfigSource source;
  source.text = job.config_text;
  source.environment_names = {};
  auto config = config::ParseJobConfig(source);
  if (!config) return std::nullopt;
  return *std::move(config);
}

}  // namespace

Result<std::optional<std::string>> TokenizerOfJob(const ir::JobRequest& job, int64_t id) {
  const std::optional<config::JobConfig> config = JobConfigOf(job);
  if (config && config::IsTokenized(*config)) {
    MW_ASSIGN_OR_RETURN(std::string path, TokenizerOf(*config));
    if (FileExists(path)) return std::optional(std::move(path));
    return Fail(NotFound(
        fmt::format("job {} was trained with the tokenizer {}, which is not there: run the command "
                    "where it is, or give the model as a folder (`meshwright checkpoint export {} "
                    "FOLDER`)",
                    id, path, id)));
  }
  const std::string format = TokenFormatOf(job.data);
  if (format == "bytes") return std::optional<std::string>();
  return Fail(InvalidArgument(
      fmt::format("the data of job {} are {} tokens, not text; give its model as a folder that has "
                  "the tokenizer (`meshwright checkpoint export {} FOLDER`)",
                  id, format, id)));
}

Result<TextCodec> CodecOfJob(const ir::JobRequest& job, int64_t id) {
  MW_ASSIGN_OR_RETURN(const std::optional<std::string> tokenizer, TokenizerOfJob(job, id));
  if (!tokenizer) return TextCodec::OfBytes();
  return TextCodec::OfFolder(*tokenizer);
}

Result<PairCodec> PairCodecOfJob(const ir::JobRequest& job, int64_t id) {
  const std::optional<config::JobConfig> config = JobConfigOf(job);
  const std::string path = config ? RowTokenizerOf(*config) : "";
  if (path.empty()) return PairCodec{TextCodec::OfRowBytes(), static_cast<int32_t>(kEndOfBytes)};
  if (!std::filesystem::exists(path)) {
    return Fail(NotFound(fmt::format(
        "job {} was trained with the tokenizer {}, which is not there: run the command where it is",
        id, path)));
  }
  MW_ASSIGN_OR_RETURN(const auto tokenizer, tokenizer::Tokenizer::Load(path));
  const auto end = EndOfText(FolderOfTokenizer(path), tokenizer);
  MW_ASSIGN_OR_RETURN(TextCodec codec, TextCodec::OfFolder(path));
  return PairCodec{std::move(codec),
                   end ? std::optional(static_cast<int32_t>(*end)) : std::nullopt};
}

std::optional<std::string> FolderWithTokensOfJob(const ir::JobRequest& job) {
  const std::optional<config::JobConfig> config = JobConfigOf(job);
  if (!config || config->hf_path.empty() || !config::IsTokenized(*config)) return std::nullopt;
  const std::string tokenizer = FolderOfTokenizer(RowTokenizerOf(*config));
  std::string folder = FolderOfTokenizer(config->hf_path);
  std::error_code error;
  if (!std::filesystem::equivalent(tokenizer, folder, error)) return std::nullopt;
  return folder;
}

std::optional<int32_t> EndOfJobTexts(const ir::JobRequest& job, int64_t id) {
  const std::optional<config::JobConfig> config = JobConfigOf(job);
  if (config && config->model.document_separator.value_or(-1) >= 0) {
    return static_cast<int32_t>(*config->model.document_separator);
  }
  const auto path = TokenizerOfJob(job, id);
  if (!path.has_value() || !*path) return std::nullopt;
  const auto end = EndOfText(**path);
  return end ? std::optional(static_cast<int32_t>(*end)) : std::nullopt;
}

}  // namespace meshwright::cli
