#include "cli/writing_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "cli/predict_text.h"
#include "client/evaluation.h"
#include "config/tuning.h"
#include "generation/settings.h"
#include "ir/adapters.h"

namespace meshwright::cli {
namespace {

// What a job file says of who writes.
struct Written {
  models::Model model;
  ir::LoraSpec lora;
};

// The programs of `job` with the adapters that its weights have.
Result<ir::JobRequest> Adapted(ir::JobRequest job, const ir::LoraSpec& lora) {
  for (ir::JobProgram& program : job.programs) {
    if (lora.rank == 0) break;
    MW_ASSIGN_OR_RETURN(program.graph, ir::WithAdapters(program.graph, lora));
  }
  return job;
}

// What the config.json of the model says.
Result<int32_t> StartOf(const models::Model& model) {
  MW_ASSIGN_OR_RETURN(const auto settings, generation::ParseSettings(model.hf_config));
  if (settings.start) return *settings.start;
  return Fail(
      Internal(fmt::format("model '{}' does not say what its decoder begins with", model.name)));
}

// What texts there may be.
struct Texts {
  int64_t positions = 0;  // of the longest
  int64_t count = 1;      // at once
};

generation::PagedOptions PagedOptionsOf(const Texts& texts) {
  generation::PagedOptions options;
  options.positions = texts.positions;
  options.texts = texts.count;
  options.tokens = std::max(options.tokens, options.texts);
  return options;
}

// The decoder begins with a token of its own, and there is no job without pages.
Result<WritingJob> OfSources(const ir::JobRequest& of, const Written& by, int64_t source,
                             const Texts& texts, const std::string& name) {
  generation::PagedOptions options = PagedOptionsOf(texts);
  options.source = source;
  MW_ASSIGN_OR_RETURN(const generation::PagedPlan plan, generation::PlanPages(options));
  MW_ASSIGN_OR_RETURN(const int32_t start, StartOf(by.model));
  MW_ASSIGN_OR_RETURN(ir::JobRequest job, generation::PagedJob(of, by.model.functions, plan, name));
  MW_ASSIGN_OR_RETURN(job, Adapted(std::move(job), by.lora));
  return WritingJob{std::move(job), texts.positions, plan, start};
}

// `whole` is the job without pages.
Result<WritingJob> InPages(const ir::JobRequest& of, const Written& by, const Texts& texts,
                           ir::JobRequest whole) {
  MW_ASSIGN_OR_RETURN(const generation::PagedPlan plan,
                      generation::PlanPages(PagedOptionsOf(texts)));
  auto job = generation::PagedJob(of, by.model.functions, plan, whole.name);
  if (job) {
    MW_ASSIGN_OR_RETURN(ir::JobRequest adapted, Adapted(*std::move(job), by.lora));
    MW_ASSIGN_OR_RETURN(adapted, generation::WithHalfWeights(std::move(adapted)));
    return WritingJob{std::move(adapted), texts.positions, plan};
  }
  if (job.error().code() != StatusCode::kUnimplemented) return Fail(job.error());
  fmt::print(stderr, "every token reads the whole text again: {}\n", job.error().message());
  return WritingJob{std::move(whole), texts.positions};
}

// A model that is asked about whole rows is no writer.
Status CheckWrites(const models::Model& model, bool alone) {
  if (ReadsSources(model) && !alone) return OkStatus();
  if (!model.functions.inputs && !model.functions.corrupt) return OkStatus();
  const char* why =
      ReadsSources(model) ? "has an encoder, which reads a text" : "sees what comes behind a token";
  return Unimplemented(fmt::format(
      "model '{}' {}: no text is written with it; ask its job about rows, `meshwright predict JOB "
      "--data FILE --out FILE.jsonl`{}",
      model.name, why,
      model.rows.labels > 0 ? "; how many of its validation data it gets right is said by "
                              "`meshwright evaluate JOB`"
                            : ""));
}

// Of the window that "predict" takes; 0: it is no program of a language model.
int64_t PositionsOf(const ir::JobRequest& predict) {
  const ir::Graph& graph = predict.main().graph;
  for (const NodeId id : graph.NodesOf(ir::Op::kFeed)) {
    const ir::Node& feed = graph.node(id);
    const ir::Dims& dims = graph.type(feed.outputs[0]).dims;
    if (feed.attrs.Str("source") == kWindowInput && dims.size() == 2) return dims[1] - 1;
  }
  return 0;
}

// The model of the job's own file; none: the job was made by a program, or its folder is gone.
std::optional<Written> ModelOf(const ir::JobRequest& job) {
  if (job.config_text.empty()) return std::nullopt;
  config::ConfigSource source;
  source.text = job.config_text;
  source.environment_names = {};
  const auto config = config::ParseJobConfig(source);
  if (!config) return std::nullopt;
  auto prepared = config::PrepareJob(*config);
  const auto tuning = config::TuningOf(*config);
  if (!prepared || !tuning) return std::nullopt;
  return Written{std::move(prepared->model), tuning->lora};
}

}  // namespace

bool ReadsSources(const models::Model& model) {
  return model.rows.kind == models::SampleKind::kPair;
}

bool ReadsSources(const ir::JobRequest& job) {
  const std::optional<Written> by = ModelOf(job);
  return by && ReadsSources(by->model);
}

Status CheckWrites(const ir::JobRequest& job, bool alone) {
  const std::optional<Written> by = ModelOf(job);
  return by ? CheckWrites(by->model, alone) : OkStatus();
}

Result<WritingJob> WritingJobOf(const config::JobConfig& config,
                                const config::PreparedJob& prepared, int64_t written,
                                int64_t texts) {
  MW_TRY(CheckWrites(prepared.model, false));
  MW_ASSIGN_OR_RETURN(
      ir::JobRequest whole,
      client::PredictionOf(prepared.request, fmt::format("generate {}", config.hf_path)));
  MW_ASSIGN_OR_RETURN(const client::FineTuning tuning, config::TuningOf(config));
  if (ReadsSources(prepared.model)) {
    return OfSources(prepared.request, {prepared.model, tuning.lora}, config.train.sequence,
                     {written, texts}, whole.name);
  }
  return InPages(prepared.request, {prepared.model, tuning.lora}, {config.train.sequence, texts},
                 std::move(whole));
}

Result<WritingJob> WritingJobOf(const proto::JobDescription& ended, int64_t id, int64_t texts) {
  MW_ASSIGN_OR_RETURN(ir::JobRequest whole, client::PredictionOf(ended, id));
  const int64_t positions = PositionsOf(whole);
  const std::optional<Written> model = ModelOf(ended.job);
  if (model) MW_TRY(CheckWrites(model->model, false));
  if (model && ReadsSources(model->model)) {
    const int64_t source = ended.job.train.sequence;
    const int64_t target = model->model.rows.target_tokens;
    return OfSources(whole, *model, source, {target > 0 ? target : source, texts}, whole.name);
  }
  if (!model || positions < 1) return WritingJob{std::move(whole), positions};
  const ir::JobRequest of = whole;
  return InPages(of, *model, {positions, texts}, std::move(whole));
}

}  // namespace meshwright::cli
