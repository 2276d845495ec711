// evaluate --data: perplexity and accuracy of a model on data, or the choices that it takes.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/file.h"
#include "cli/commands.h"
#include "cli/connect.h"
#include "cli/eval_data.h"
#include "cli/folder_job.h"
#include "cli/job_codec.h"
#include "cli/writing_job.h"
#include "client/evaluation.h"
#include "client/score_program.h"
#include "config/tuning.h"
#include "generation/paged_session.h"
#include "ir/adapters.h"

namespace meshwright::cli {
namespace {

// A model that is open to be asked.
struct OpenModel {
  std::unique_ptr<client::Session> session;
  std::string tokenizer;  // a file or a folder; empty: tokens are bytes
  std::optional<int64_t> separator;
  int64_t positions = 0;
  ir::DType dtype = ir::DType::kF32;
  // Of a model with an encoder: what it is asked says how long its rows are.
  std::optional<EvalData> pairs = {};
  int64_t targets = 0;  // positions of a target
  int32_t padding = 0;  // of a source
};

// `of` with the one program that says how likely labels are, and the job's adapters in it.
Result<ir::JobRequest> ScoringJob(ir::JobRequest of, const config::JobConfig& config,
                                  const models::Model& model, const client::GraphShape& shape) {
  MW_ASSIGN_OR_RETURN(ir::JobProgram program, client::ScoreProgram(shape, model.functions));
  MW_ASSIGN_OR_RETURN(const client::FineTuning tuning, config::TuningOf(config));
  if (tuning.lora.rank > 0) {
    MW_ASSIGN_OR_RETURN(program.graph, ir::WithAdapters(program.graph, tuning.lora));
  }
  of.programs = {std::move(program)};
  of.driver = {ir::DriverKind::kClient, "", 0, 0};
  of.train.global_batch = shape.batch;
  return generation::WithHalfWeights(std::move(of));
}

int64_t PositionsOf(const EvalArgs& args, const models::Model& model) {
  return model.max_sequence > 0 ? std::min(args.context, model.max_sequence) : args.context;
}

// As many positions as the pairs have, and the two that distances are between at least.
void TakeLengths(OpenModel& asked) {
  constexpr int64_t kLeast = 2;
  asked.positions = asked.targets = kLeast;
  for (const EvalRow& row : asked.pairs->rows) {
    asked.positions = std::max(asked.positions, std::ssize(row.tokens));
    asked.targets = std::max(asked.targets, std::ssize(row.labels));
  }
}

// What a model with an encoder is asked, before it is opened for rows of this length.
Status ReadAskedPairs(const EvalArgs& args, const models::Model& model, const TextCodec& codec,
                      OpenModel& asked) {
  if (args.format == "text" || args.loss_on == "answers") {
    return InvalidArgument(
        fmt::format("model '{}' has an encoder: it is asked about pairs, JSON lines {{\"source\": "
                    "..., \"target\": ...}} whose targets count, or about questions; leave out "
                    "--format text and --loss-on answers",
                    model.name));
  }
  MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(args.data));
  EvalRules rules;
  rules.positions = PositionsOf(args, model);
  rules.delimiter = args.delimiter;
  rules.limit = args.limit;
  const PairEncoders encode = {
      [&codec](const std::string& part) { return codec.Encode(part); },
      [&codec](const std::string& part) { return codec.Encode(part, false); }};
  auto pairs = ReadPairs(text, encode, rules);
  if (!pairs.has_value()) return pairs.error().WithContext(args.data);
  if (pairs->rows.empty())
    return InvalidArgument("it has no token to score").WithContext(args.data);
  if (pairs->cut > 0) {
    fmt::print(stderr, "note: {} texts are longer than {} tokens and were cut{}\n", pairs->cut,
               rules.positions,
               rules.positions < args.context ? "" : " (--context N leaves room for more)");
  }
  asked.pairs = *std::move(pairs);
  asked.padding = static_cast<int32_t>(model.rows.padding);
  TakeLengths(asked);
  return OkStatus();
}

// The model, for rows of the pairs' length.
Result<config::PreparedJob> ForPairs(const OpenModel& asked, config::JobConfig& config) {
  config.train.sequence = asked.positions;
  config.model.target_tokens = asked.targets;
  return config::PrepareJob(config);
}

client::SessionOptions OptionsOf(const EvalArgs& args) {
  return {.open_timeout_ms = args.timeout_s * 1000, .timeout_ms = args.timeout_s * 1000};
}

Result<OpenModel> OpenJob(client::Client& client, const EvalArgs& args) {
  const int64_t id = std::stoll(args.model);
  if (args.dtype != EvalArgs().dtype) {
    return Fail(InvalidArgument("--dtype is for the model of a folder; a job has its own"));
  }
  MW_ASSIGN_OR_RETURN(const client::JobInfo info, client.Get(id));
  if (!client::IsTerminal(info.state)) {
    return Fail(FailedPrecondition(
        fmt::format("job {} is {}: it is evaluated once it has ended (meshwright wait {})", id,
                    client::JobStateName(info.state), id)));
  }
  MW_ASSIGN_OR_RETURN(const proto::JobDescription description, client.Describe(id));
  if (description.job.config_text.empty()) {
    return Fail(FailedPrecondition(fmt::format(
        "job {} was made by a program, not a job file; `meshwright evaluate {}` has the "
        "loss on its validation data",
        id, id)));
  }
  config::ConfigSource source;
  source.text = description.job.config_text;
  source.file = fmt::format("the file of job {}", id);
  source.environment_names = {};
  MW_ASSIGN_OR_RETURN(config::JobConfig config, config::ParseJobConfig(source));
  MW_ASSIGN_OR_RETURN(config::PreparedJob prepared, config::PrepareJob(config));
  OpenModel asked;
  MW_TRY(CheckWrites(description.job));
  if (ReadsSources(prepared.model)) {
    MW_ASSIGN_OR_RETURN(const PairCodec rows, PairCodecOfJob(description.job, id));
    MW_TRY(ReadAskedPairs(args, prepared.model, rows.codec, asked));
    MW_ASSIGN_OR_RETURN(prepared, ForPairs(asked, config));
  } else {
    MW_ASSIGN_OR_RETURN(const auto tokenizer, TokenizerOfJob(description.job, id));
    asked.tokenizer = tokenizer.value_or("");
    asked.separator = config.model.document_separator;
    asked.positions = std::min(PositionsOf(args, prepared.model), config.train.sequence);
  }
  asked.dtype = config.dtype == "float64" ? ir::DType::kF64 : ir::DType::kF32;
  MW_ASSIGN_OR_RETURN(ir::JobRequest job, client::PredictionOf(description, id));
  job.name = fmt::format("eval of job {}", id);
  MW_ASSIGN_OR_RETURN(job, ScoringJob(std::move(job), config, prepared.model,
                                      {args.batch, asked.positions, asked.dtype}));
  MW_ASSIGN_OR_RETURN(asked.session, client.OpenSession(job, OptionsOf(args)));
  return asked;
}

Result<OpenModel> OpenFolder(client::Client& client, const EvalArgs& args) {
  std::error_code error;
  if (!std::filesystem::is_directory(args.model, error)) {
    return Fail(InvalidArgument(fmt::format(
        "'{}' is neither the id of a job nor a folder with a model's config.json", args.model)));
  }
  const FolderModel model{args.model, args.dtype, args.overrides};
  // A model says how many positions it has when it is made, for one.
  MW_ASSIGN_OR_RETURN(config::JobConfig config, FolderConfig(model, 1));
  MW_ASSIGN_OR_RETURN(config::PreparedJob prepared, config::PrepareJob(config));
  OpenModel asked;
  asked.tokenizer = args.model;
  asked.dtype = config.dtype == "float64" ? ir::DType::kF64 : ir::DType::kF32;
  if (ReadsSources(prepared.model)) {
    MW_ASSIGN_OR_RETURN(const TextCodec codec, TextCodec::OfFolder(args.model));
    MW_TRY(ReadAskedPairs(args, prepared.model, codec, asked));
    MW_ASSIGN_OR_RETURN(prepared, ForPairs(asked, config));
  } else {
    asked.positions = PositionsOf(args, prepared.model);
    MW_ASSIGN_OR_RETURN(config, FolderConfig(model, asked.positions));
    MW_ASSIGN_OR_RETURN(prepared, config::PrepareJob(config));
  }
  MW_ASSIGN_OR_RETURN(ir::JobRequest job,
                      client::PredictionOf(prepared.request, fmt::format("eval {}", args.model)));
  MW_ASSIGN_OR_RETURN(job, ScoringJob(std::move(job), config, prepared.model,
                                      {args.batch, asked.positions, asked.dtype}));
  MW_ASSIGN_OR_RETURN(job, WithFolderWeights(client, config, std::move(job)));
  MW_ASSIGN_OR_RETURN(asked.session, client.OpenSession(job, OptionsOf(args)));
  return asked;
}

// What is asked, of the file.
Result<EvalData> ReadData(const EvalArgs& args, const OpenModel& asked) {
  if (asked.pairs) return *asked.pairs;
  MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(args.data));
  DocumentRules rules;
  rules.format = !args.format.empty()                                            ? args.format
                 : args.data.ends_with(".jsonl") || args.data.ends_with(".json") ? "jsonl"
                                                                                 : "text";
  rules.tokenizer = asked.tokenizer;
  rules.answers = args.loss_on == "answers";
  if (asked.separator.value_or(-1) >= 0) rules.separator = asked.separator;
  EvalRules of;
  of.positions = asked.positions;
  of.delimiter = args.delimiter;
  of.limit = args.limit;
  if (rules.format == "jsonl" && HasQuestions(text)) {
    MW_ASSIGN_OR_RETURN(TextCodec codec, asked.tokenizer.empty()
                                             ? Result<TextCodec>(TextCodec::OfBytes())
                                             : TextCodec::OfFolder(asked.tokenizer));
    return ReadQuestions(
        text, [&codec](const std::string& part) { return codec.Encode(part, false); }, of);
  }
  MW_ASSIGN_OR_RETURN(const DocumentMaker maker, DocumentMaker::Make(rules));
  MW_ASSIGN_OR_RETURN(std::vector<Document> documents, maker.OfPart(text, true, 1));
  if (args.limit > 0 && std::ssize(documents) > args.limit) {
    documents.resize(static_cast<size_t>(args.limit));
  }
  return RowsOfDocuments(documents, of);
}

// Rows [first, first + batch); behind the last one there are empty ones.
client::Feeds FeedsOf(const EvalData& data, size_t first, const EvalArgs& args,
                      const OpenModel& asked) {
  const auto width = static_cast<size_t>(asked.positions);
  const auto most = static_cast<size_t>(asked.pairs ? asked.targets : asked.positions);
  const auto batch = static_cast<size_t>(args.batch);
  std::vector<int32_t> tokens(batch * width, asked.padding);
  std::vector<int32_t> labels(batch * most, 0);
  std::vector<double> counts(labels.size(), 0);
  const auto at = [](std::vector<int32_t>& values, size_t place) {
    return values.begin() + static_cast<std::ptrdiff_t>(place);
  };
  for (size_t i = 0; i < batch && first + i < data.rows.size(); ++i) {
    const EvalRow& row = data.rows[first + i];
    std::copy(row.tokens.begin(), row.tokens.end(), at(tokens, i * width));
    std::copy(row.labels.begin(), row.labels.end(), at(labels, i * most));
    for (size_t k = 0; k < row.counts.size(); ++k) counts[i * most + k] = row.counts[k] ? 1 : 0;
  }
  const ir::Dims dims = {args.batch, static_cast<int64_t>(most)};
  return {{asked.pairs ? "source" : "tokens",
           client::Tensor::Of<int32_t>({args.batch, asked.positions}, tokens)},
          {asked.pairs ? "target" : "labels", client::Tensor::Of<int32_t>(dims, labels)},
          {"counts", client::Tensor::OfReals(asked.dtype, dims, counts)}};
}

Result<std::vector<RowScore>> Ask(const EvalData& data, const EvalArgs& args,
                                  const OpenModel& asked) {
  std::vector<RowScore> scores;
  const auto batch = static_cast<size_t>(args.batch);
  for (size_t first = 0; first < data.rows.size(); first += batch) {
    MW_ASSIGN_OR_RETURN(
        const client::Answer answer,
        asked.session->Run(client::kScoreProgram, FeedsOf(data, first, args, asked)));
    const std::vector<double> likely = answer.tensors.at("log_likelihood").Reals();
    const std::vector<double> hits = answer.tensors.at("hits").Reals();
    for (size_t i = 0; i < batch && first + i < data.rows.size(); ++i) {
      scores.push_back({likely.at(i), hits.at(i)});
    }
  }
  return scores;
}

Status WriteSamples(const std::string& path, const EvalData& data,
                    const std::vector<RowScore>& scores) {
  if (path.empty()) return OkStatus();
  std::string text;
  for (size_t i = 0; i < data.questions.size(); ++i) {
    const Question& question = data.questions[i];
    nlohmann::ordered_json line = {{"doc_id", i}, {"target", question.answer}};
    for (size_t k = 0; k < question.lengths.size(); ++k) {
      line["log_likelihoods"].push_back(scores[question.first + k].log_likelihood);
    }
    line["acc"] = ChoiceOf(question, scores, false) == question.answer ? 1.0 : 0.0;
    line["acc_norm"] = ChoiceOf(question, scores, true) == question.answer ? 1.0 : 0.0;
    text += line.dump() + "\n";
  }
  for (size_t i = 0; data.questions.empty() && i < scores.size(); ++i) {
    const auto tokens = std::count(data.rows[i].counts.begin(), data.rows[i].counts.end(), true);
    text += nlohmann::ordered_json{{"row", i},
                                   {"tokens", tokens},
                                   {"log_likelihood", scores[i].log_likelihood},
                                   {"hits", scores[i].hits}}
                .dump() +
            "\n";
  }
  return WriteFileAtomic(path, text);
}

void Print(const EvalArgs& args, const std::vector<MetricValue>& metrics, bool json) {
  if (json) {
    nlohmann::ordered_json object = {{"model", args.model}, {"data", args.data}};
    for (const MetricValue& metric : metrics) {
      object[metric.name] = metric.value;
      if (metric.error) object[metric.name + "_stderr"] = *metric.error;
    }
    fmt::print("{}\n", object.dump());
    return;
  }
  fmt::print("{:<14} {:>12} {:>10}\n", "metric", "value", "stderr");
  for (const MetricValue& metric : metrics) {
    const std::string error = metric.error ? fmt::format("{:.4f}", *metric.error) : "";
    fmt::print("{:<14} {:>12.6g} {:>10}\n", metric.name, metric.value, error);
  }
}

Result<int> Eval(const EvalArgs& args, const GlobalArgs& global) {
  MW_ASSIGN_OR_RETURN(const auto client, ConnectAs("evaluate", global));
  const Result<OpenModel> opened =
      IsJobId(args.model) ? OpenJob(*client, args) : OpenFolder(*client, args);
  if (!opened.has_value()) return ReportUnopened(*client, opened.error());
  const OpenModel& asked = *opened;
  Result<EvalData> data = ReadData(args, asked);
  if (data.has_value() && data->rows.empty())
    data = Fail(InvalidArgument("it has no token to score"));
  if (!data.has_value()) {
    MW_TRY(asked.session->Close());
    return Fail(data.error().WithContext(args.data));
  }
  const Result<std::vector<RowScore>> scores = Ask(*data, args, asked);
  const Status closed = asked.session->Close();
  MW_TRY(scores);
  MW_TRY(closed);
  MW_TRY(WriteSamples(args.samples, *data, *scores));
  Print(args, MetricsOf(*data, *scores), global.json);
  return kExitOk;
}

}  // namespace

int RunEvaluateOnData(const EvalArgs& args, const GlobalArgs& global) {
  const Result<int> code = Eval(args, global);
  return code ? *code : ReportError(code.error());
}

}  // namespace meshwright::cli
