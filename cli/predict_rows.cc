#include "cli/predict_rows.h"

#include <algorithm>

#include "cli/image_rows.h"
#include "cli/row_files.h"
#include "cli/token_files.h"
#include "config/job_config.h"
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
  data::FilesRequest request;
  request.format = "safetensors";
  request.paths = made.paths;
  return request;
}

}  // namespace

Result<std::optional<ir::DataStream>> RowsToAsk(const ir::JobRequest& job,
                                                const std::vector<std::string>& paths) {
  std::optional<ir::DataStream> none;
  if (job.config_text.empty() || paths.empty()) return none;
  if (AllEnd(paths, {".npy", ".safetensors"})) return none;
  config::ConfigSource source;
  source.text = job.config_text;
  source.environment_names = {};
  MW_ASSIGN_OR_RETURN(const config::JobConfig config, config::ParseJobConfig(source));
  MW_ASSIGN_OR_RETURN(config::PreparedJob prepared, config::PrepareJob(config));
  models::Model& model = prepared.model;
  if (model.rows.kind == models::SampleKind::kWindow) return none;
  model.rows.asks = true;
  const bool images = model.rows.kind == models::SampleKind::kImage;
  MW_ASSIGN_OR_RETURN(data::FilesRequest request,
                      images ? ImagesToAsk(model.rows, paths) : TextsToAsk(config, model, paths));
  request.stream = "data";
  request.validation_paths = request.paths;
  MW_ASSIGN_OR_RETURN(ir::DataStream stream, data::DescribeFiles(request));
  return std::optional(std::move(stream));
}

}  // namespace meshwright::cli
