#include "cli/predict_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "cli/image_rows.h"
#include "cli/predict_text.h"
#include "cli/row_files.h"
#include "cli/token_files.h"
#include "config/job_config.h"
#include "data/check_contents.h"
#include "data/describe.h"

namespace meshwright::cli {
namespace {

bool AllEnd(const std::vector<std::string>& paths, const std::vector<std::string>& endings) {
  return std::all_of(paths.begin(), paths.end(), [&](const std::string& path) {
    return std::any_of(endings.begin(), endings.end(),
                       [&](const std::string& end) { return path.ends_with(end); });
  });
}

const std::vector<std::string>& Lines() {
  static const std::vector<std::string> endings = {".jsonl", ".json"};
  return endings;
}

Result<data::FilesRequest> ImagesToAsk(const models::ModelRows& rows,
                                       const std::vector<std::string>& paths) {
  MW_ASSIGN_OR_RETURN(const std::vector<LabelledImage> images,
                      AllEnd(paths, Lines()) ? ImagesOfLines(paths, rows) : ImagesAt(paths));
  MW_ASSIGN_OR_RETURN(const ImageRows made, MakeImageRows(images, rows, TokenCacheOf(paths[0])));
  data::FilesRequest request;
  request.format = "npy";
  request.paths = {"pixels=" + made.pixels, "label=" + made.labels};
  return request;
}

Result<data::FilesRequest> TextsToAsk(const config::JobConfig& config, const models::Model& model,
                                      const std::vector<std::string>& paths) {
  RowFilesRequest texts;
  texts.files = paths;
  texts.tokenizer = RowTokenizerOf(config);
  texts.rows = model.rows;
  texts.tokens = config.train.sequence;
  texts.vocabulary = model.vocabulary;
  texts.cache = TokenCacheOf(paths[0]);
  MW_ASSIGN_OR_RETURN(const RowFiles made, MakeRowFiles(texts));
  if (made.cut > 0) {
    fmt::print(stderr, "note: {} texts are longer than {} tokens and were cut\n", made.cut,
               texts.tokens);
  }
  data::FilesRequest request;
  request.format = "safetensors";
  request.paths = made.paths;
  return request;
}

struct JobModel {
  config::JobConfig config;
  models::Model model;
};

// Known from the program alone: the folder of the model need not be on this machine.
bool TakesWindows(const ir::JobRequest& job) {
  const ir::JobProgram* const program = job.FindProgram(kPredictProgram);
  return program != nullptr && program->inputs.contains(kWindowInput);
}

// Nothing: the job is trained on windows of tokens, or no job file says it.
Result<std::optional<JobModel>> ModelOfJob(const ir::JobRequest& job) {
  std::optional<JobModel> none;
  if (job.config_text.empty() || TakesWindows(job)) return none;
  config::ConfigSource source;
  source.text = job.config_text;
  source.environment_names = {};
  MW_ASSIGN_OR_RETURN(config::JobConfig config, config::ParseJobConfig(source));
  MW_ASSIGN_OR_RETURN(config::PreparedJob prepared, config::PrepareJob(config));
  return std::optional(JobModel{std::move(config), std::move(prepared.model)});
}

Result<AskedRows> AskedOf(JobModel of, const std::vector<std::string>& paths) {
  of.model.rows.asks = true;
  const bool images = of.model.rows.kind == models::SampleKind::kImage;
  MW_ASSIGN_OR_RETURN(data::FilesRequest request, images ? ImagesToAsk(of.model.rows, paths)
                                                         : TextsToAsk(of.config, of.model, paths));
  request.stream = "data";
  request.validation_paths = request.paths;
  MW_ASSIGN_OR_RETURN(ir::DataStream stream, data::DescribeFiles(request));
  return AskedRows{std::move(stream), std::move(of.model.rows)};
}

}  // namespace

Result<std::optional<models::ModelRows>> RowsOfJob(const ir::JobRequest& job) {
  MW_ASSIGN_OR_RETURN(std::optional<JobModel> of, ModelOfJob(job));
  return of ? std::optional(std::move(of->model.rows)) : std::nullopt;
}

Result<std::optional<int64_t>> MaskOfJob(const ir::JobRequest& job) {
  MW_ASSIGN_OR_RETURN(std::optional<JobModel> of, ModelOfJob(job));
  return of ? of->model.sizes.mask_token : std::nullopt;
}

Result<std::optional<AskedRows>> RowsToAsk(const ir::JobRequest& job,
                                           const std::vector<std::string>& paths) {
  std::optional<AskedRows> none;
  if (paths.empty() || AllEnd(paths, {".npy", ".safetensors"})) return none;
  MW_ASSIGN_OR_RETURN(std::optional<JobModel> of, ModelOfJob(job));
  if (!of || of->model.rows.kind == models::SampleKind::kWindow) return none;
  MW_ASSIGN_OR_RETURN(AskedRows rows, AskedOf(*std::move(of), paths));
  return std::optional(std::move(rows));
}

Result<AskedRows> TextToAsk(const ir::JobRequest& job, int64_t id, const std::string& text,
                            const std::string& folder) {
  MW_ASSIGN_OR_RETURN(std::optional<JobModel> of, ModelOfJob(job));
  MW_CHECK(of.has_value()) << "job " << id << " has no job file";
  const models::ModelRows& rows = of->model.rows;
  if (rows.kind == models::SampleKind::kPair) {
    return Fail(FailedPrecondition(fmt::format(
        "the model of job {} answers a text with a text: `meshwright generate {} \"TEXT\"` has it "
        "write, and `meshwright predict {} --data FILE.jsonl --out FILE.jsonl` has the logits",
        id, id, id)));
  }
  if (rows.kind != models::SampleKind::kLabelled) {
    return Fail(FailedPrecondition(
        fmt::format("the model of job {} reads images: `meshwright predict {} --data photo.png "
                    "--out answers.jsonl`, or a folder of them",
                    id, id)));
  }
  if (const int64_t bad = data::FindInvalidUtf8(text); bad >= 0) {
    return Fail(InvalidArgument(fmt::format("the text: byte {} is no UTF-8", bad)));
  }
  const std::string path = folder + "/text.jsonl";
  MW_TRY(WriteFileAtomic(path, nlohmann::json{{"text", text}}.dump() + "\n"));
  return AskedOf(*std::move(of), {path});
}

}  // namespace meshwright::cli
